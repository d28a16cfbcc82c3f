-- after: apache/spark, docs/streaming/apis-on-dataframes-and-datasets.md, the inner join of impressions and clicks with watermarks
-- samples: 2
-- watermark impressions.b 2 hours
-- watermark clicks.b 3 hours
select impressions.a as ad, clicks.b as clicked
from impressions join clicks
on clicks.a = impressions.a and clicks.b >= impressions.b and clicks.b <= impressions.b + interval 1 hour
