import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;
import org.apache.inlong.tubemq.client.common.PeerInfo;
import org.apache.inlong.tubemq.client.consumer.ConsumeOffsetInfo;
import org.apache.inlong.tubemq.client.consumer.ConsumerResult;
import org.apache.inlong.tubemq.client.consumer.MessageConsumer;
import org.apache.inlong.tubemq.client.consumer.MessageListener;
import org.apache.inlong.tubemq.client.consumer.PullMessageConsumer;
import org.apache.inlong.tubemq.client.consumer.PushMessageConsumer;
import org.apache.inlong.tubemq.client.factory.MessageSessionFactory;
import org.apache.inlong.tubemq.client.factory.TubeMultiSessionFactory;
import org.apache.inlong.tubemq.corebase.Message;

/** A consumer whose partitions the master chooses: pull, or push, by itself or step by step. */
final class Readers {
    private final String name;
    private final MessageSessionFactory factory;
    private final MessageConsumer consumer;
    private volatile boolean running = true;
    private Thread loop;

    Readers(String name, JsonObject request) throws Exception {
        this.name = name;
        factory = new TubeMultiSessionFactory(Peer.consumerConfig(request));
        boolean push = Peer.text(request, "mode", "pull").equals("push");
        consumer = push
                ? factory.createPushConsumer(Peer.consumerConfig(request))
                : factory.createPullConsumer(Peer.consumerConfig(request));
        for (Map.Entry<String, JsonElement> entry : request.getAsJsonObject("topics").entrySet()) {
            if (push) {
                ((PushMessageConsumer) consumer).subscribe(
                        entry.getKey(), Peer.filters(entry.getValue()), new Listener());
            } else {
                ((PullMessageConsumer) consumer).subscribe(entry.getKey(), Peer.filters(entry.getValue()));
            }
        }
        complete(request);
        if (!push && request.has("auto")) {
            loop = new Thread(this::run);
            loop.setDaemon(true);
            loop.start();
        }
    }

    private void complete(JsonObject request) throws Exception {
        if (!request.has("session")) {
            consumer.completeSubscribe();
            return;
        }
        Map<String, Long> offsets = new HashMap<>();
        request.getAsJsonObject("offsets").entrySet()
                .forEach(entry -> offsets.put(entry.getKey(), entry.getValue().getAsLong()));
        boolean big = request.has("select_big");
        int count = request.get("count").getAsInt();
        consumer.completeSubscribe(request.get("session").getAsString(), count, big, offsets);
    }

    JsonObject facts() {
        return Peer.object("client_id", consumer.getConsumerId());
    }

    private void run() {
        while (running) {
            try {
                JsonObject pulled = pull();
                if (pulled.get("success").getAsBoolean()) {
                    confirmed(pulled);
                } else if (pulled.get("code").getAsInt() != 404) {
                    Thread.sleep(20);
                }
            } catch (Throwable error) {
                JsonObject event = Peer.object("event", "error");
                event.addProperty("name", name);
                event.addProperty("text", error.toString());
                Peer.say(event);
            }
        }
    }

    private void confirmed(JsonObject pulled) throws Exception {
        batch(name, pulled);
        String context = pulled.get("context").getAsString();
        ConsumerResult result = ((PullMessageConsumer) consumer).confirmConsume(context, true);
        JsonObject event = Peer.object("event", "confirmed");
        event.addProperty("name", name);
        event.add("partition", pulled.get("partition"));
        event.addProperty("success", result.isSuccess());
        event.addProperty("text", result.getErrCode() + " " + result.getErrMsg());
        Peer.say(event);
    }

    JsonObject pull() throws Exception {
        ConsumerResult result = ((PullMessageConsumer) consumer).getMessage();
        JsonObject answer = new JsonObject();
        answer.addProperty("success", result.isSuccess());
        answer.addProperty("code", result.getErrCode());
        answer.addProperty("text", String.valueOf(result.getErrMsg()));
        if (result.isSuccess()) {
            answer.addProperty("context", result.getConfirmContext());
            answer.addProperty("partition", result.getPartitionKey());
            answer.addProperty("offset", result.getCurrOffset());
            answer.add("messages", told(result.getMessageList()));
        }
        return answer;
    }

    JsonObject confirm(JsonObject request) throws Exception {
        ConsumerResult result = ((PullMessageConsumer) consumer).confirmConsume(
                request.get("context").getAsString(), request.get("accept").getAsBoolean());
        JsonObject answer = new JsonObject();
        answer.addProperty("success", result.isSuccess());
        answer.addProperty("code", result.getErrCode());
        answer.addProperty("offset", result.getCurrOffset());
        return answer;
    }

    JsonObject partitions() throws Exception {
        JsonObject held = new JsonObject();
        for (Map.Entry<String, ConsumeOffsetInfo> entry : consumer.getCurConsumedPartitions().entrySet()) {
            held.addProperty(entry.getKey(), entry.getValue().getCurrOffset());
        }
        JsonObject answer = new JsonObject();
        answer.add("partitions", held);
        return answer;
    }

    void close() throws Throwable {
        running = false;
        if (loop != null) {
            loop.join(10000);
        }
        consumer.shutdown();
        factory.shutdown();
    }

    static void batch(String name, JsonObject pulled) {
        JsonObject event = Peer.object("event", "batch");
        event.addProperty("name", name);
        event.add("partition", pulled.get("partition"));
        event.add("offset", pulled.get("offset"));
        event.add("messages", pulled.get("messages"));
        Peer.say(event);
    }

    static JsonArray told(List<Message> messages) throws Exception {
        JsonArray all = new JsonArray();
        for (Message message : messages) {
            byte[] body = message.getData();
            JsonObject one = Peer.object("topic", message.getTopic());
            one.addProperty("size", body.length);
            byte[] sum = MessageDigest.getInstance("SHA-256").digest(body);
            one.addProperty("sha256", Base64.getEncoder().encodeToString(sum));
            if (body.length <= 200) {
                one.addProperty("body", Base64.getEncoder().encodeToString(body));
            }
            one.addProperty("message_id", message.getIndexId());
            one.addProperty("attributes", message.getAttribute());
            one.addProperty("type", message.getMsgType());
            one.addProperty("time", message.getMsgTime());
            all.add(one);
        }
        return all;
    }

    /** Says what a push consumer is given. */
    private final class Listener implements MessageListener {
        @Override
        public void receiveMessages(PeerInfo peer, List<Message> messages) {
            JsonObject pulled = Peer.object("partition", peer.getPartitionKey());
            pulled.addProperty("offset", peer.getCurrOffset());
            try {
                pulled.add("messages", told(messages));
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
            batch(name, pulled);
        }

        @Override
        public Executor getExecutor() {
            return null;
        }

        @Override
        public void stop() {
        }
    }
}
