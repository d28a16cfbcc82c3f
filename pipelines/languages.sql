-- How much of each kind of file was changed on each day: a query of Spark's SQL.
-- `sessionlake init events --sql languages.sql -o languages.toml` makes one more pipeline of it, next to the others.
-- watermark authored_at 30 days
-- unique event_id 90 days
select ext, window.start as day, count(*) as changes, count(distinct author) as authors, sum(added) as lines_added
from events
group by ext, window(authored_at, '1 day')
