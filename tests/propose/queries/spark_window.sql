-- quoted: apache/spark 4.1.1, the first example of `window` in the function's description (TimeWindow.scala), without ORDER BY
SELECT a, window.start, window.end, count(*) as cnt FROM tab GROUP by a, window(b, '5 minutes')
