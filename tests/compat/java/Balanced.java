import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.inlong.tubemq.client.common.ConfirmResult;
import org.apache.inlong.tubemq.client.common.ConsumeResult;
import org.apache.inlong.tubemq.client.common.QueryMetaResult;
import org.apache.inlong.tubemq.client.consumer.ClientBalanceConsumer;
import org.apache.inlong.tubemq.client.factory.MessageSessionFactory;
import org.apache.inlong.tubemq.client.factory.TubeMultiSessionFactory;
import org.apache.inlong.tubemq.corebase.rv.ProcessResult;

/** A consumer that chooses its partitions itself. */
final class Balanced {
    private final MessageSessionFactory factory;
    private final ClientBalanceConsumer consumer;

    Balanced(JsonObject request) throws Exception {
        factory = new TubeMultiSessionFactory(Peer.consumerConfig(request));
        consumer = factory.createBalanceConsumer(Peer.consumerConfig(request));
        Map<String, TreeSet<String>> topics = new TreeMap<>();
        for (Map.Entry<String, JsonElement> entry : request.getAsJsonObject("topics").entrySet()) {
            topics.put(entry.getKey(), Peer.filters(entry.getValue()));
        }
        ProcessResult result = new ProcessResult();
        int count = (int) Peer.number(request, "count", -1);
        int node = (int) Peer.number(request, "node", -1);
        if (!consumer.start(topics, count, node, result)) {
            throw new IllegalStateException(result.getErrCode() + " " + result.getErrMsg());
        }
    }

    JsonObject facts() {
        return Peer.object("client_id", consumer.getConsumerId());
    }

    JsonObject metadata() throws Exception {
        QueryMetaResult result = new QueryMetaResult();
        consumer.getPartitionMetaInfo(result);
        JsonObject answer = new JsonObject();
        answer.addProperty("success", result.isSuccess());
        answer.addProperty("text", String.valueOf(result.getErrMsg()));
        answer.add("partitions", Peer.GSON.toJsonTree(result.getPartStatusMap()));
        return answer;
    }

    JsonObject connect(JsonObject request) throws Exception {
        ProcessResult result = new ProcessResult();
        long offset = Peer.number(request, "offset", -1);
        consumer.connect2Partition(request.get("partition").getAsString(), offset, result);
        return outcome(result);
    }

    JsonObject disconnect(JsonObject request) throws Exception {
        ProcessResult result = new ProcessResult();
        consumer.disconnectFromPartition(request.get("partition").getAsString(), result);
        return outcome(result);
    }

    private static JsonObject outcome(ProcessResult result) {
        JsonObject answer = new JsonObject();
        answer.addProperty("success", result.isSuccess());
        answer.addProperty("code", result.getErrCode());
        answer.addProperty("text", String.valueOf(result.getErrMsg()));
        return answer;
    }

    JsonObject pull() throws Exception {
        ConsumeResult result = new ConsumeResult();
        consumer.getMessage(result);
        JsonObject answer = new JsonObject();
        answer.addProperty("success", result.isSuccess());
        answer.addProperty("code", result.getErrCode());
        answer.addProperty("text", String.valueOf(result.getErrMsg()));
        if (result.isSuccess()) {
            answer.addProperty("partition", result.getPartitionKey());
            answer.addProperty("offset", result.getCurrOffset());
            answer.add("messages", Readers.told(result.getMessageList()));
            ConfirmResult confirmed = new ConfirmResult();
            consumer.confirmConsume(result.getConfirmContext(), true, confirmed);
            answer.addProperty("confirmed", confirmed.isSuccess());
        }
        return answer;
    }

    void close() throws Throwable {
        consumer.shutdown();
        factory.shutdown();
    }
}
