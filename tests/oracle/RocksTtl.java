import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.CompactionStyle;
import org.rocksdb.ConfigOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rocksdb.OptionsUtil;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;
import org.rocksdb.TtlDB;

/**
 * What RocksDB's option `ttl` does in a store of Kafka Streams: writes a table of keys, waits until all are older than the ttl, writes one
 * key more again and again, so that files are made and compacted, and counts what the store has. Then the database is compacted whole, as
 * Kafka Streams has left it on disk, and counted before and after; and the same keys in a database that RocksDB opens "with time to live",
 * which Kafka Streams has no way to ask for.
 *
 * <p>Arguments: a folder, and the ttl in seconds. Prints lines of `name number`.
 */
public class RocksTtl {
    private static final int KEYS = 1000;
    private static final int LATER = 4000;
    private static final String VALUE = "v".repeat(1000);
    /** Bytes: Kafka Streams writes a file whenever so much is in memory, by default 16 MB. */
    private static final int WRITE_BUFFER = 64 << 10;
    private static final String STORE = "table";
    private static int ttl;
    private static CompactionStyle style;

    public static class Setter implements RocksDBConfigSetter {
        @Override
        public void setConfig(String storeName, Options options, Map<String, Object> configs) {
            style = options.compactionStyle();
            options.setTtl(ttl);
            options.setWriteBufferSize(WRITE_BUFFER);
        }

        @Override
        public void close(String storeName, Options options) {}
    }

    public static void main(String[] arguments) throws Exception {
        File root = new File(arguments[0]);
        ttl = Integer.parseInt(arguments[1]);
        RocksDB.loadLibrary();
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "ttl");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        properties.put(StreamsConfig.STATE_DIR_CONFIG, root.getPath());
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        properties.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, Setter.class);
        StreamsBuilder builder = new StreamsBuilder();
        builder.table(
                "in",
                Consumed.with(Serdes.String(), Serdes.String()),
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(STORE));
        File copy = new File(root, "copy");
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), properties, Instant.now())) {
            TestInputTopic<String, String> in =
                    driver.createInputTopic("in", new StringSerializer(), new StringSerializer(), Instant.now(), Duration.ZERO);
            KeyValueStore<String, ?> store = driver.getTimestampedKeyValueStore(STORE);
            for (int key = 0; key < KEYS; key++) {
                in.pipeInput("key" + key, VALUE);
            }
            System.out.println("style " + style);
            System.out.println("written " + count(store));
            long until = System.nanoTime() + Duration.ofSeconds(2L * ttl + 1).toNanos();
            while (System.nanoTime() < until) {
                Thread.sleep(50);
            }
            File database = folder(root);
            String last = newest(database);
            for (int n = 0; n < LATER; n++) {
                in.pipeInput("later", VALUE + n);
            }
            settle(database);
            System.out.println("files_written " + (number(newest(database)) - number(last)) + " left " + sorted(database).size());
            System.out.println("after_ttl " + count(store));
            // The driver removes its folder as it closes.
            copy(database, copy);
        }
        compact(copy);
        System.out.println("with_ttl_database " + withTtlDatabase(new File(root, "control")));
    }

    private static long count(KeyValueStore<String, ?> store) {
        long found = 0;
        try (KeyValueIterator<String, ?> entries = store.all()) {
            for (; entries.hasNext(); entries.next()) {
                found++;
            }
        }
        return found;
    }

    private static File folder(File root) {
        File found = null;
        List<File> open = new ArrayList<>(List.of(root));
        while (found == null) {
            File next = open.remove(0);
            File[] inside = next.isDirectory() ? next.listFiles() : new File[0];
            if (new File(next, "CURRENT").exists()) {
                found = next;
            }
            open.addAll(List.of(inside));
        }
        return found;
    }

    /** Wait until compactions have ended: until then files go that the manifest names. */
    private static void settle(File database) throws Exception {
        for (List<String> files = null; !sorted(database).equals(files); Thread.sleep(500)) {
            files = sorted(database);
        }
    }

    private static void copy(File from, File to) throws Exception {
        to.mkdir();
        for (File file : from.listFiles()) {
            Files.copy(file.toPath(), to.toPath().resolve(file.getName()));
        }
    }

    private static List<String> sorted(File database) {
        return Stream.of(database.list((folder, name) -> name.endsWith(".sst"))).sorted().toList();
    }

    private static String newest(File database) {
        List<String> files = sorted(database);
        return files.get(files.size() - 1);
    }

    private static int number(String file) {
        return Integer.parseInt(file.replace(".sst", ""));
    }

    /** Compact all families of a closed store, under the options that it was written with, and count its keys before and after. */
    private static void compact(File database) throws Exception {
        List<ColumnFamilyDescriptor> families = new ArrayList<>();
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        try (DBOptions options = new DBOptions(); ConfigOptions how = new ConfigOptions()) {
            OptionsUtil.loadLatestOptions(how, database.getPath(), options, families);
            try (RocksDB opened = RocksDB.open(options, database.getPath(), families, handles)) {
                long before = 0;
                long after = 0;
                for (ColumnFamilyHandle family : handles) {
                    before += count(opened.newIterator(family));
                    opened.compactRange(family);
                    after += count(opened.newIterator(family));
                }
                handles.forEach(ColumnFamilyHandle::close);
                System.out.println("on_disk " + before);
                System.out.println("after_full_compaction " + after);
            }
        }
    }

    /** Count what a compaction leaves of the same keys where RocksDB keeps the time of each. */
    private static long withTtlDatabase(File folder) throws Exception {
        try (Options options = new Options().setCreateIfMissing(true).setCompactionStyle(style);
                TtlDB database = TtlDB.open(options, folder.getPath(), ttl, false)) {
            for (int key = 0; key < KEYS; key++) {
                database.put(("key" + key).getBytes(StandardCharsets.UTF_8), VALUE.getBytes(StandardCharsets.UTF_8));
            }
            Thread.sleep(2000L * ttl + 1000);
            database.compactRange();
            return count(database.newIterator());
        }
    }

    private static long count(RocksIterator iterator) {
        long found = 0;
        try (RocksIterator entries = iterator) {
            for (entries.seekToFirst(); entries.isValid(); entries.next()) {
                found += new String(entries.key(), StandardCharsets.UTF_8).startsWith("key") ? 1 : 0;
            }
        }
        return found;
    }
}
