-- after: HeartSaVioR/iot-trucking-app-spark-structured-streaming, src/main/scala/com/hortonworks/spark/benchmark/streaming/sessionwindow/plenty_of_rows_in_session/BenchmarkSessionWindowListenerWordCountSessionFunction.scala
-- watermark b 10 seconds
select a as session_of, session_window.start as started, session_window.end as ended, count(*) as num_events
from words group by session_window(b, '10 seconds'), a
