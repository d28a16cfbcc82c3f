-- quoted: apache/spark 4.1.1, the example of `window_time` in the function's description (WindowTime.scala), without ORDER BY
SELECT a, window.start as start, window.end as end, window_time(window), cnt
FROM (SELECT a, window, count(*) as cnt FROM tab GROUP by a, window(b, '5 minutes'))
