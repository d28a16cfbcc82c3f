import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.FileSourceSplit;
import org.apache.flink.connector.file.src.assigners.SimpleSplitAssigner;
import org.apache.flink.core.fs.Path;
import org.apache.flink.formats.parquet.ParquetColumnarRowInputFormat;
import org.apache.flink.formats.parquet.row.ParquetRowDataBuilder;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;
import org.apache.flink.streaming.api.functions.windowing.WindowFunction;
import org.apache.flink.streaming.api.windowing.windows.GlobalWindow;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.VarCharType;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.Collector;

/**
 * One workload on Flink: from Parquet files to Parquet files, state in RocksDB, checkpoints on. SQL, where SQL has the windows, since it
 * shares slices and gathers updates in small batches; count windows are the DataStream's.
 *
 * <p>Arguments: workload, folder, events a batch, events in all, grace in ms, size in ms, advance or gap in ms, messages a count window, folder of events, and for a
 * join that of the right side. Prints "start" when the job is submitted, "batch N" as its sources have read each batch's events, "end" when the
 * job has ended. What came out is in the folder out: key, start, end, count, total.
 */
public class FlinkPeer {
    private static final AtomicLong taken = new AtomicLong();
    private static final LogicalType TEXT = new VarCharType(VarCharType.MAX_LENGTH);
    private static final LogicalType LONG = new BigIntType();
    private static final RowType EVENT = RowType.of(new LogicalType[] {TEXT, LONG, LONG}, new String[] {"key", "ms", "amount"});
    private static final RowType RESULT =
            RowType.of(new LogicalType[] {TEXT, LONG, LONG, LONG, LONG}, new String[] {"key", "start", "end", "count", "total"});

    private static long batch;

    public static void main(String[] arguments) throws Exception {
        String workload = arguments[0];
        String folder = arguments[1];
        batch = Long.parseLong(arguments[2]);
        long grace = Long.parseLong(arguments[4]);
        long size = Long.parseLong(arguments[5]);
        long step = Long.parseLong(arguments[6]);
        long messages = Long.parseLong(arguments[7]);
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(settings(folder));
        flink.setParallelism(2);
        DataStream<RowData> results;
        if (workload.equals("count")) {
            results = events(flink, arguments[8], "events").keyBy(row -> row.getString(0).toString()).countWindow(messages).aggregate(new Sum(), new Named());
        } else {
            StreamTableEnvironment tables = StreamTableEnvironment.create(flink);
            for (int i = 8; i < arguments.length; i++) {
                String name = i == 8 ? "e" : "r";
                Schema schema = Schema.newBuilder()
                        .column("key", "STRING")
                        .column("ms", "BIGINT")
                        .column("amount", "BIGINT")
                        .columnByExpression("rt", "TO_TIMESTAMP_LTZ(ms, 3)")
                        .watermark("rt", "rt - " + minutes(grace))
                        .build();
                tables.createTemporaryView(name, tables.fromDataStream(events(flink, arguments[i], name), schema));
            }
            results = tables.toChangelogStream(tables.sqlQuery(query(workload, size, step)))
                    .filter(row -> row.getKind() != RowKind.UPDATE_BEFORE)
                    .map(FlinkPeer::result)
                    .returns(InternalTypeInfo.of(RESULT));
        }
        results.sinkTo(FileSink.forBulkFormat(
                        new Path(folder, "out"), ParquetRowDataBuilder.createWriterFactory(RESULT, new org.apache.hadoop.conf.Configuration(), true))
                .withBucketAssigner(new BasePathBucketAssigner<>())
                .withRollingPolicy(OnCheckpointRollingPolicy.build())
                .build());
        System.out.println("start");
        flink.execute(workload);
        System.out.println("end");
    }

    private static Configuration settings(String folder) {
        Configuration settings = new Configuration();
        settings.setString("execution.runtime-mode", RuntimeExecutionMode.STREAMING.name());
        settings.setString("state.backend.type", "rocksdb");
        settings.setString("execution.checkpointing.interval", "2 s");
        settings.setString("execution.checkpointing.incremental", "true");
        settings.setString("execution.checkpointing.storage", "filesystem");
        settings.setString("execution.checkpointing.dir", "file://" + folder + "/checkpoints");
        settings.setString("io.tmp.dirs", folder + "/tmp");
        settings.setString("taskmanager.memory.managed.size", "1g");
        settings.setString("taskmanager.numberOfTaskSlots", "2");
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("table.exec.mini-batch.enabled", "true");
        settings.setString("table.exec.mini-batch.allow-latency", "2 s");
        settings.setString("table.exec.mini-batch.size", "100000");
        settings.setString("table.local-time-zone", "UTC");
        return settings;
    }

    private static DataStream<RowData> events(StreamExecutionEnvironment flink, String folder, String name) {
        ParquetColumnarRowInputFormat<FileSourceSplit> format = new ParquetColumnarRowInputFormat<>(
                new org.apache.hadoop.conf.Configuration(), EVENT, InternalTypeInfo.of(EVENT), 2048, true, true);
        FileSource<RowData> source = FileSource.forBulkFileFormat(format, new Path(folder))
                .setSplitAssigner(splits -> {
                    // It hands out the last one first, and files must be read in the order of their times.
                    List<FileSourceSplit> ordered = new ArrayList<>(splits);
                    ordered.sort(Comparator.comparing((FileSourceSplit split) -> split.path().getName()).reversed());
                    return new SimpleSplitAssigner(ordered);
                })
                .build();
        return flink.fromSource(source, WatermarkStrategy.noWatermarks(), name)
                .map(row -> {
                    long count = taken.incrementAndGet();
                    if (count % batch == 0) {
                        System.out.println("batch " + count / batch);
                    }
                    return row;
                })
                .returns(InternalTypeInfo.of(EVENT));
    }

    private static String query(String workload, long size, long step) {
        switch (workload) {
            case "sessions":
                return windows("SESSION(TABLE e PARTITION BY key, DESCRIPTOR(rt), " + minutes(step) + ")");
            case "tumbling":
                String start = "ms - MOD(ms, " + size + ")";
                return "SELECT key, s, s + " + size + ", COUNT(*), SUM(amount) FROM (SELECT key, amount, " + start + " AS s FROM e) GROUP BY key, s";
            case "hopping":
                return windows("HOP(TABLE e, DESCRIPTOR(rt), " + minutes(step) + ", " + minutes(size) + ")");
            case "sliding":
                return "SELECT key, ms - " + size + ", ms, COUNT(*) OVER w, SUM(amount) OVER w FROM e "
                        + "WINDOW w AS (PARTITION BY key ORDER BY rt RANGE BETWEEN " + minutes(size) + " PRECEDING AND CURRENT ROW)";
            case "join":
                return "SELECT e.key, e.ms, r.ms, e.amount, r.amount FROM e JOIN r ON e.key = r.key AND e.rt BETWEEN r.rt - "
                        + minutes(size) + " AND r.rt + " + minutes(size);
            default:
                throw new IllegalArgumentException("no query for " + workload);
        }
    }

    private static String windows(String function) {
        String millis = "CAST(EXTRACT(EPOCH FROM %1$s) AS BIGINT) * 1000 + EXTRACT(MILLISECOND FROM %1$s)";
        return "SELECT key, " + String.format(millis, "window_start") + ", " + String.format(millis, "window_end")
                + ", COUNT(*), SUM(amount) FROM TABLE(" + function + ") GROUP BY key, window_start, window_end";
    }

    private static String minutes(long millis) {
        return "INTERVAL '" + millis / 60_000 + "' MINUTE(3)";
    }

    private static RowData result(Row row) {
        GenericRowData result = GenericRowData.of(StringData.fromString((String) row.getField(0)), null, null, null, null);
        for (int i = 1; i < 5; i++) {
            result.setField(i, ((Number) row.getField(i)).longValue());
        }
        return result;
    }

    private static class Sum implements AggregateFunction<RowData, long[], long[]> {
        @Override
        public long[] createAccumulator() {
            return new long[2];
        }

        @Override
        public long[] add(RowData row, long[] sum) {
            return new long[] {sum[0] + 1, sum[1] + row.getLong(2)};
        }

        @Override
        public long[] getResult(long[] sum) {
            return sum;
        }

        @Override
        public long[] merge(long[] one, long[] other) {
            return new long[] {one[0] + other[0], one[1] + other[1]};
        }
    }

    private static class Named implements WindowFunction<long[], RowData, String, GlobalWindow>, org.apache.flink.api.java.typeutils.ResultTypeQueryable<RowData> {
        @Override
        public void apply(String key, GlobalWindow window, Iterable<long[]> sums, Collector<RowData> out) {
            for (long[] sum : sums) {
                out.collect(GenericRowData.of(StringData.fromString(key), 0L, 0L, sum[0], sum[1]));
            }
        }

        @Override
        public org.apache.flink.api.common.typeinfo.TypeInformation<RowData> getProducedType() {
            return InternalTypeInfo.of(RESULT);
        }
    }
}
