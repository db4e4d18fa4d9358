import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.inlong.tubemq.client.config.ConsumerConfig;
import org.apache.inlong.tubemq.client.config.TubeClientConfig;
import org.apache.inlong.tubemq.client.consumer.ConsumePosition;

/**
 * A TubeMQ client that tests drive: one JSON request a line on standard input, one JSON answer or event a line on
 * standard output. The same requests work with ../go/peer.go; tests/compat/peers.py is the other end.
 */
public final class Peer {
    static final Gson GSON = new Gson();
    private static final PrintStream OUT = System.out;
    private final Map<String, Senders> senders = new ConcurrentHashMap<>();
    private final Map<String, Readers> readers = new ConcurrentHashMap<>();
    private final Map<String, Balanced> balanced = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        Peer peer = new Peer();
        say(object("event", "ready"));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            Thread thread = new Thread(() -> peer.answer(request));
            thread.setDaemon(true);
            thread.start();
        }
        Runtime.getRuntime().halt(0);
    }

    static synchronized void say(JsonObject line) {
        OUT.println(GSON.toJson(line));
        OUT.flush();
    }

    static JsonObject object(String key, String value) {
        JsonObject made = new JsonObject();
        made.addProperty(key, value);
        return made;
    }

    private void answer(JsonObject request) {
        JsonObject answer;
        try {
            answer = act(request);
            answer.addProperty("ok", true);
        } catch (Throwable error) {
            answer = object("error", error.toString());
            answer.addProperty("ok", false);
        }
        answer.add("id", request.get("id"));
        say(answer);
    }

    private JsonObject act(JsonObject request) throws Throwable {
        String name = request.get("name").getAsString();
        switch (request.get("do").getAsString()) {
            case "open_producer":
                Senders sender = new Senders(request);
                senders.put(name, sender);
                return sender.facts();
            case "send":
                return senders.get(name).send(request);
            case "flood":
                return senders.get(name).flood(request);
            case "flood_stop":
                return senders.get(name).floodStop();
            case "open_consumer":
                Readers reader = new Readers(name, request);
                readers.put(name, reader);
                return reader.facts();
            case "pull":
                return readers.get(name).pull();
            case "confirm":
                return readers.get(name).confirm(request);
            case "partitions":
                return readers.get(name).partitions();
            case "open_balanced":
                Balanced member = new Balanced(request);
                balanced.put(name, member);
                return member.facts();
            case "metadata":
                return balanced.get(name).metadata();
            case "connect":
                return balanced.get(name).connect(request);
            case "disconnect":
                return balanced.get(name).disconnect(request);
            case "balanced_pull":
                return balanced.get(name).pull();
            case "close":
                return close(name);
            default:
                throw new IllegalArgumentException(request.toString());
        }
    }

    private JsonObject close(String name) throws Throwable {
        if (senders.containsKey(name)) {
            senders.remove(name).close();
        } else if (readers.containsKey(name)) {
            readers.remove(name).close();
        } else {
            balanced.remove(name).close();
        }
        return new JsonObject();
    }

    /** Options that all kinds of clients share. */
    static <T extends TubeClientConfig> T configured(T config, JsonObject request) throws Exception {
        config.setHeartbeatPeriodMs(number(request, "heartbeat_ms", 1000));
        config.setHeartbeatPeriodAfterFail(1000);
        config.setRegFailWaitPeriodMs(500);
        config.setUnAvailableFbdDurationMs(2000);
        config.setMaxForbiddenCheckDuration(2000);
        config.setLinkStatsForbiddenDurationMs(2000);
        if (request.has("user")) {
            String password = request.get("password").getAsString();
            config.setAuthenticInfo(true, request.get("user").getAsString(), password);
        }
        return config;
    }

    static ConsumerConfig consumerConfig(JsonObject request) throws Exception {
        ConsumerConfig config = new ConsumerConfig(
                request.get("master").getAsString(), request.get("group").getAsString());
        configured(config, request);
        config.setMsgNotFoundWaitPeriodMs(100);
        config.setShutDownRebalanceWaitPeriodMs(2000);
        config.setPartMetaInfoCheckPeriodMs(5000);
        String position = text(request, "position", "first");
        if (position.equals("first")) {
            config.setConsumePosition(ConsumePosition.CONSUMER_FROM_FIRST_OFFSET);
        } else if (position.equals("latest")) {
            config.setConsumePosition(ConsumePosition.CONSUMER_FROM_LATEST_OFFSET);
        } else {
            config.setConsumePosition(ConsumePosition.CONSUMER_FROM_MAX_OFFSET_ALWAYS);
        }
        config.setPullConfirmInLocal(request.has("confirm_local"));
        return config;
    }

    static TreeSet<String> filters(JsonElement items) {
        JsonArray array = items.getAsJsonArray();
        if (array.size() == 0) {
            return null;
        }
        TreeSet<String> filters = new TreeSet<>();
        array.forEach(item -> filters.add(item.getAsString()));
        return filters;
    }

    static long number(JsonObject request, String key, long otherwise) {
        return request.has(key) ? request.get(key).getAsLong() : otherwise;
    }

    static String text(JsonObject request, String key, String otherwise) {
        return request.has(key) ? request.get(key).getAsString() : otherwise;
    }
}
