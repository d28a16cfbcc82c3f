-- after: high-performance-spark/high-performance-spark-examples, core/src/main/scala/com/high-performance-spark-examples/streaming/structuredstreaming/StreamStreamJoinBothSideWatermark.scala
-- samples: 2
-- watermark l.b 10 minutes
-- watermark r.b 10 minutes
select l.a, l.b as left_at, r.b as right_at, l.v as left_value, r.v as right_value
from l join r on l.b >= r.b - interval 5 minutes and l.b <= r.b + interval 5 minutes and l.a = r.a
