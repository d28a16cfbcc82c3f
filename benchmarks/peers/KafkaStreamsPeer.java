import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.WindowStore;

/**
 * One workload on Kafka Streams: fill topics from files, run over them, write what came out to a file.
 *
 * <p>Arguments: workload, servers, folder, events a batch, events in all, grace in ms, size in ms, advance or gap in ms; the folder has
 * events.tsv, or left.tsv and right.tsv (key, milliseconds, amount). Prints "start" when the stream begins, "batch N" as it has taken
 * each batch's events, "end" when all is committed. What came out is in out.tsv: key, start, end, count, total, in the order of each
 * partition; a count of -1 is a deletion.
 */
public class KafkaStreamsPeer {
    record Sum(long count, long total) {
        Sum with(long amount) {
            return new Sum(count + 1, total + amount);
        }
    }

    private static final int PARTITIONS = 2;
    /** The broker drops records by their time, which is the events': they are months old. */
    private static final String FOREVER = "-1";
    private static final Duration RETENTION = Duration.ofDays(1);
    private static final AtomicLong taken = new AtomicLong();
    private static final Serde<Sum> SUM = Serdes.serdeFrom(
            (topic, sum) -> sum == null ? null : ByteBuffer.allocate(16).putLong(sum.count).putLong(sum.total).array(),
            (topic, bytes) -> bytes == null ? null : new Sum(ByteBuffer.wrap(bytes).getLong(), ByteBuffer.wrap(bytes).getLong(8)));

    private final String workload;
    private final String servers;
    private final Path folder;
    private final long batch;
    private final long all;
    private final Duration grace;
    private final Duration size;
    private final Duration step;
    private long latest;
    private volatile Exception failed;

    KafkaStreamsPeer(String[] arguments) {
        workload = arguments[0];
        servers = arguments[1];
        folder = Path.of(arguments[2]);
        batch = Long.parseLong(arguments[3]);
        all = Long.parseLong(arguments[4]);
        grace = Duration.ofMillis(Long.parseLong(arguments[5]));
        size = Duration.ofMillis(Long.parseLong(arguments[6]));
        step = Duration.ofMillis(Long.parseLong(arguments[7]));
    }

    public static void main(String[] arguments) throws Exception {
        new KafkaStreamsPeer(arguments).run();
    }

    private void run() throws Exception {
        List<String> inputs = workload.equals("join") ? List.of("left", "right") : List.of("events");
        List<NewTopic> topics = new ArrayList<>();
        for (String name : List.of("events", "left", "right", "out")) {
            topics.add(new NewTopic(name, PARTITIONS, (short) 1).configs(Map.of("retention.ms", FOREVER)));
        }
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", servers))) {
            admin.createTopics(topics).all().get();
        }
        for (String input : inputs) {
            fill(input);
        }
        KafkaStreams streams = new KafkaStreams(topology(), settings());
        System.out.println("start");
        streams.start();
        while (taken.get() < all) {
            Thread.sleep(10);
            if (streams.state() == KafkaStreams.State.ERROR) {
                throw new IllegalStateException("the stream has ended; its log says why");
            }
        }
        if (workload.equals("hopping") || workload.equals("sliding_exits")) {
            emitClosed();
        }
        streams.close();
        System.out.println("end");
        dump();
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "peer");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, folder.resolve("state").toString());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, PARTITIONS);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 2000);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 256 << 20);
        settings.put(StreamsConfig.topicPrefix("retention.ms"), FOREVER);
        settings.put("auto.offset.reset", "earliest");
        settings.put("producer.batch.size", 262144);
        settings.put("producer.linger.ms", 20);
        settings.put("producer.compression.type", "lz4");
        settings.put("consumer.max.poll.records", 5000);
        return settings;
    }

    private org.apache.kafka.streams.Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> out;
        if (workload.equals("join")) {
            KStream<String, Long> right = source(builder, "right");
            out = source(builder, "left")
                    .join(
                            right,
                            (one, other) -> "0\t0\t" + one + "\t" + other,
                            JoinWindows.ofTimeDifferenceAndGrace(size, grace),
                            StreamJoined.with(Serdes.String(), Serdes.Long(), Serdes.Long()));
        } else {
            out = aggregated(source(builder, "events").groupByKey(Grouped.with(Serdes.String(), Serdes.Long())))
                    .toStream()
                    .map((window, sum) -> KeyValue.pair(window.key(), text(window, sum)));
        }
        out.to("out", Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private KStream<String, Long> source(StreamsBuilder builder, String topic) {
        return builder.stream(topic, Consumed.with(Serdes.String(), Serdes.Long())).peek((key, amount) -> {
            long count = taken.incrementAndGet();
            if (count % batch == 0) {
                System.out.println("batch " + count / batch);
            }
        });
    }

    private KTable<Windowed<String>, Sum> aggregated(KGroupedStream<String, Long> grouped) {
        Sum none = new Sum(0, 0);
        // By default a store keeps a window no longer than until it is closed, and one that is dropped before it was emitted is lost:
        // that is looked for once a second, in which a stream that catches up passes hours.
        Materialized<String, Sum, WindowStore<Bytes, byte[]>> kept = Materialized.with(Serdes.String(), SUM);
        kept.withRetention(RETENTION);
        switch (workload) {
            case "sessions":
                return grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(step, grace))
                        .aggregate(
                                () -> none,
                                (key, amount, sum) -> sum.with(amount),
                                (key, one, other) -> new Sum(one.count + other.count, one.total + other.total),
                                Materialized.with(Serdes.String(), SUM));
            case "tumbling":
                return grouped.windowedBy(TimeWindows.ofSizeAndGrace(size, grace))
                        .aggregate(() -> none, (key, amount, sum) -> sum.with(amount), kept);
            case "hopping":
                return grouped.windowedBy(TimeWindows.ofSizeAndGrace(size, grace).advanceBy(step))
                        .emitStrategy(EmitStrategy.onWindowClose())
                        .aggregate(() -> none, (key, amount, sum) -> sum.with(amount), kept);
            case "sliding_exits":
                return grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(size, grace))
                        .emitStrategy(EmitStrategy.onWindowClose())
                        .aggregate(() -> none, (key, amount, sum) -> sum.with(amount), kept);
            default:
                throw new IllegalArgumentException("Kafka Streams has no windows for " + workload);
        }
    }

    private static String text(Windowed<String> window, Sum sum) {
        String bounds = window.window().start() + "\t" + window.window().end();
        return sum == null ? bounds + "\t-1\t0" : bounds + "\t" + sum.count + "\t" + sum.total;
    }

    private KafkaProducer<String, Long> producer() {
        return new KafkaProducer<>(
                Map.<String, Object>of("bootstrap.servers", servers, "linger.ms", 20, "batch.size", 262144, "compression.type", "lz4"),
                new StringSerializer(),
                new LongSerializer());
    }

    private void fill(String topic) throws Exception {
        try (KafkaProducer<String, Long> producer = producer();
                BufferedReader lines = Files.newBufferedReader(folder.resolve(topic + ".tsv"))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] fields = line.split("\t");
                long time = Long.parseLong(fields[1]);
                latest = Math.max(latest, time);
                producer.send(new ProducerRecord<>(topic, null, time, fields[0], Long.parseLong(fields[2])), (sent, error) -> failed = error == null ? failed : error);
            }
            producer.flush();
        }
        if (failed != null) {
            throw failed;
        }
    }

    /**
     * Let what is closed be emitted: Kafka looks for it once a second, and only when an event comes. One in the far future would not do, since
     * its store would drop windows that wait.
     */
    private void emitClosed() throws Exception {
        try (KafkaProducer<String, Long> producer = producer()) {
            for (int round = 1; round <= 3; round++) {
                Thread.sleep(1100);
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    long time = latest + round;
                    producer.send(new ProducerRecord<>("events", partition, time, "closing", 0L)).get();
                }
                producer.flush();
            }
        }
        while (taken.get() < all + 3 * PARTITIONS) {
            Thread.sleep(10);
        }
    }

    private void dump() throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", servers);
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", 50000);
        try (KafkaConsumer<String, String> consumer =
                        new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
                BufferedWriter out = Files.newBufferedWriter(folder.resolve("out.tsv"))) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int i = 0; i < PARTITIONS; i++) {
                partitions.add(new TopicPartition("out", i));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    out.write(record.key() + "\t" + record.value() + "\n");
                }
            }
        }
    }
}
