-- after: transparent412/big-data-lectures, practice-02/spark-scala/src/main/scala/SparkDemoStructuredStreaming.scala
-- watermark b 10 minutes
select window, a as value, count(1) as count from words group by window(b, '10 minutes', '5 minutes'), a
