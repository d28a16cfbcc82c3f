import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.DoubleSerializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Runs streams through real Kafka Streams: each line of standard input is a stream, each line of standard output what was forwarded.
 *
 * <p>A stream is {"topology": {"kind": ...}, "events": [[key, time, value], ...]}, times in milliseconds and not negative; an event of
 * a join has "left" or "right" as its fourth element. The answer has one list an event, of the updates that Kafka forwarded for it, in
 * their order: [key, start, end, count, sum], where the last two are null for a deletion; of a join [key, time, left value, right
 * value]. Nothing is cached, so each update is forwarded. With "finals" in the topology, windows are forwarded once, when they close.
 */
public class KafkaStreams {
    record Aggregate(long count, double sum) {
        Aggregate with(double value) {
            return new Aggregate(count + 1, sum + value);
        }

        Aggregate merged(Aggregate other) {
            return new Aggregate(count + other.count, sum + other.sum);
        }

        byte[] bytes() {
            return ByteBuffer.allocate(16).putLong(count).putDouble(sum).array();
        }

        static Aggregate of(byte[] bytes) {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            return new Aggregate(buffer.getLong(), buffer.getDouble());
        }
    }

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Aggregate NONE = new Aggregate(0, 0);
    private static final Serde<Aggregate> AGGREGATE = Serdes.serdeFrom(
            (topic, aggregate) -> aggregate == null ? null : aggregate.bytes(),
            (topic, bytes) -> bytes == null ? null : Aggregate.of(bytes));

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode stream = JSON.readTree(line);
            out.println(forwarded(stream.get("topology"), stream.get("events")));
        }
    }

    private static ArrayNode forwarded(JsonNode topology, JsonNode events) {
        ArrayNode answer = JSON.createArrayNode();
        // The topology's last node adds to the list of the event that is being processed.
        ArrayNode[] current = new ArrayNode[1];
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, Double> typed = Consumed.with(Serdes.String(), Serdes.Double());
        KStream<String, Double> left = builder.stream("left", typed);
        boolean join = topology.get("kind").asText().equals("join");
        if (join) {
            joined(left, builder.stream("right", typed), topology, current);
        } else {
            KTable<Windowed<String>, Aggregate> table = aggregated(left.groupByKey(Grouped.with(Serdes.String(), Serdes.Double())), topology);
            if (topology.has("finals")) {
                table = table.suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded().withLoggingDisabled()));
            }
            table.toStream()
                    .foreach((window, aggregate) -> add(current[0], window, aggregate));
        }
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "oracle");
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), settings)) {
            TestInputTopic<String, Double> lefts = driver.createInputTopic("left", new StringSerializer(), new DoubleSerializer());
            TestInputTopic<String, Double> rights =
                    join ? driver.createInputTopic("right", new StringSerializer(), new DoubleSerializer()) : null;
            for (JsonNode event : events) {
                current[0] = answer.addArray();
                TestInputTopic<String, Double> side = join && event.get(3).asText().equals("right") ? rights : lefts;
                side.pipeInput(event.get(0).asText(), event.get(2).asDouble(), event.get(1).asLong());
            }
        }
        return answer;
    }

    private static KTable<Windowed<String>, Aggregate> aggregated(KGroupedStream<String, Double> grouped, JsonNode topology) {
        Duration grace = millis(topology, "grace");
        switch (topology.get("kind").asText()) {
            case "time":
                return grouped.windowedBy(TimeWindows.ofSizeAndGrace(millis(topology, "size"), grace).advanceBy(millis(topology, "advance")))
                        .aggregate(() -> NONE, (key, value, sum) -> sum.with(value), windowStore(topology));
            case "sliding":
                return grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(millis(topology, "difference"), grace))
                        .aggregate(() -> NONE, (key, value, sum) -> sum.with(value), windowStore(topology));
            case "session":
                return grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(millis(topology, "gap"), grace))
                        .aggregate(
                                () -> NONE,
                                (key, value, sum) -> sum.with(value),
                                (key, one, other) -> one.merged(other),
                                kept(Materialized.<String, Aggregate, SessionStore<Bytes, byte[]>>as("store"), topology));
            default:
                throw new IllegalArgumentException("kind is " + topology.get("kind") + "; give time, sliding, session or join");
        }
    }

    private static void joined(KStream<String, Double> left, KStream<String, Double> right, JsonNode topology, ArrayNode[] current) {
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, millis(topology, "grace"))
                .before(millis(topology, "before"))
                .after(millis(topology, "after"));
        left.join(
                        right,
                        (one, other) -> new double[] {one, other},
                        windows,
                        StreamJoined.with(Serdes.String(), Serdes.Double(), Serdes.Double())
                                .withDslStoreSuppliers(BuiltInDslStoreSuppliers.IN_MEMORY))
                .process(() -> new org.apache.kafka.streams.processor.api.ContextualProcessor<String, double[], Void, Void>() {
                    @Override
                    public void process(org.apache.kafka.streams.processor.api.Record<String, double[]> pair) {
                        current[0].addArray().add(pair.key()).add(pair.timestamp()).add(pair.value()[0]).add(pair.value()[1]);
                    }
                });
    }

    private static Materialized<String, Aggregate, WindowStore<Bytes, byte[]>> windowStore(JsonNode topology) {
        return kept(Materialized.as("store"), topology);
    }

    private static <S extends StateStore> Materialized<String, Aggregate, S> kept(
            Materialized<String, Aggregate, S> store, JsonNode topology) {
        if (topology.has("retention")) {
            store.withRetention(millis(topology, "retention"));
        }
        return store.withKeySerde(Serdes.String())
                .withValueSerde(AGGREGATE)
                .withCachingDisabled()
                .withLoggingDisabled()
                .withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY);
    }

    private static void add(ArrayNode updates, Windowed<String> window, Aggregate aggregate) {
        ArrayNode update = updates.addArray().add(window.key()).add(window.window().start()).add(window.window().end());
        if (aggregate == null) {
            update.addNull().addNull();
        } else {
            update.add(aggregate.count()).add(aggregate.sum());
        }
    }

    private static Duration millis(JsonNode topology, String name) {
        return Duration.ofMillis(topology.get(name).asLong());
    }
}
