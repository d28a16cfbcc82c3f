-- quoted: apache/spark 4.1.1, the second example of `window` in the function's description (TimeWindow.scala)
-- line: 4:1 order_by
SELECT a, window.start, window.end, count(*) as cnt FROM tab GROUP by a, window(b, '10 minutes', '5 minutes')
ORDER BY a, start
