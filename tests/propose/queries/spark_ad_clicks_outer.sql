-- after: apache/spark, docs/streaming/apis-on-dataframes-and-datasets.md, the outer join of impressions and clicks
-- samples: 2
select impressions.a as ad, clicks.b as clicked
from impressions left outer join clicks
on clicks.a = impressions.a and clicks.b >= impressions.b and clicks.b <= impressions.b + interval 1 hour
