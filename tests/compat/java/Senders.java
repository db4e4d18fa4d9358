import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.inlong.tubemq.client.config.TubeClientConfig;
import org.apache.inlong.tubemq.client.factory.MessageSessionFactory;
import org.apache.inlong.tubemq.client.factory.TubeMultiSessionFactory;
import org.apache.inlong.tubemq.client.producer.MessageProducer;
import org.apache.inlong.tubemq.client.producer.MessageSentCallback;
import org.apache.inlong.tubemq.client.producer.MessageSentResult;
import org.apache.inlong.tubemq.corebase.Message;

/** A producer. */
final class Senders {
    private final MessageSessionFactory factory;
    private final MessageProducer producer;
    private final TreeSet<String> topics = new TreeSet<>();
    private final JsonArray acknowledged = new JsonArray();
    private final JsonArray failed = new JsonArray();
    private volatile boolean flooding;
    private Thread flood;

    Senders(JsonObject request) throws Exception {
        factory = new TubeMultiSessionFactory(
                Peer.configured(new TubeClientConfig(request.get("master").getAsString()), request));
        producer = factory.createProducer();
        request.getAsJsonArray("topics").forEach(topic -> topics.add(topic.getAsString()));
        if (topics.size() == 1) {
            producer.publish(topics.first());
        } else {
            producer.publish(topics);
        }
    }

    JsonObject facts() throws Exception {
        JsonObject facts = new JsonObject();
        facts.add("topics", Peer.GSON.toJsonTree(producer.getPublishedTopicSet()));
        return facts;
    }

    JsonObject send(JsonObject request) throws Exception {
        JsonArray messages = request.getAsJsonArray("messages");
        JsonObject[] results = new JsonObject[messages.size()];
        boolean later = request.has("async");
        CountDownLatch left = new CountDownLatch(later ? messages.size() : 0);
        for (int i = 0; i < results.length; i++) {
            Message message = message(messages.get(i).getAsJsonObject());
            if (later) {
                producer.sendMessage(message, new Kept(results, i, left));
            } else {
                results[i] = outcome(producer.sendMessage(message));
            }
        }
        if (!left.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " messages were not answered");
        }
        JsonObject answer = new JsonObject();
        answer.add("results", Peer.GSON.toJsonTree(results));
        return answer;
    }

    JsonObject flood(JsonObject request) {
        String topic = request.get("topic").getAsString();
        String prefix = request.get("prefix").getAsString();
        long pace = Peer.number(request, "pace_ms", 5);
        flooding = true;
        flood = new Thread(() -> run(topic, prefix, pace));
        flood.setDaemon(true);
        flood.start();
        return new JsonObject();
    }

    private void run(String topic, String prefix, long pace) {
        for (int i = 0; flooding; i++) {
            String value = prefix + i;
            String fault;
            try {
                Thread.sleep(pace);
                Message message = new Message(topic, value.getBytes(StandardCharsets.UTF_8));
                MessageSentResult result = producer.sendMessage(message);
                fault = result.isSuccess() ? "" : result.getErrCode() + " " + result.getErrMsg();
            } catch (Throwable error) {
                fault = error.toString();
            }
            synchronized (acknowledged) {
                (fault.isEmpty() ? acknowledged : failed).add(value + (fault.isEmpty() ? "" : " " + fault));
            }
        }
    }

    JsonObject floodStop() throws Exception {
        flooding = false;
        flood.join(60000);
        JsonObject answer = new JsonObject();
        synchronized (acknowledged) {
            answer.add("acknowledged", acknowledged);
            answer.add("failed", failed);
        }
        return answer;
    }

    void close() throws Throwable {
        flooding = false;
        producer.shutdown();
        factory.shutdown();
    }

    private static Message message(JsonObject given) {
        byte[] body = Base64.getDecoder().decode(given.get("body").getAsString());
        Message message = new Message(given.get("topic").getAsString(), body);
        if (given.has("type") || given.has("time")) {
            message.putSystemHeader(Peer.text(given, "type", null), Peer.text(given, "time", null));
        }
        if (given.has("attributes")) {
            for (Map.Entry<String, JsonElement> entry : given.getAsJsonObject("attributes").entrySet()) {
                message.setAttrKeyVal(entry.getKey(), entry.getValue().getAsString());
            }
        }
        return message;
    }

    private static JsonObject outcome(MessageSentResult result) {
        JsonObject made = new JsonObject();
        made.addProperty("success", result.isSuccess());
        made.addProperty("code", result.getErrCode());
        made.addProperty("text", String.valueOf(result.getErrMsg()));
        if (result.isSuccess()) {
            made.addProperty("message_id", result.getMessageId());
            made.addProperty("partition", result.getPartition().getPartitionKey());
            made.addProperty("offset", result.getAppendOffset());
        }
        return made;
    }

    /** Keeps the outcome of one asynchronous message. */
    private static final class Kept implements MessageSentCallback {
        private final JsonObject[] results;
        private final int place;
        private final CountDownLatch left;

        Kept(JsonObject[] results, int place, CountDownLatch left) {
            this.results = results;
            this.place = place;
            this.left = left;
        }

        @Override
        public void onMessageSent(MessageSentResult result) {
            results[place] = outcome(result);
            left.countDown();
        }

        @Override
        public void onException(Throwable error) {
            results[place] = Peer.object("text", error.toString());
            results[place].addProperty("success", false);
            left.countDown();
        }
    }
}
