-- quoted: apache/spark 4.1.1, the second example of `session_window` in the function's description (SessionWindow.scala), without ORDER BY
SELECT a, session_window.start, session_window.end, count(*) as cnt FROM tab
GROUP by a, session_window(b, CASE WHEN a = 'A1' THEN '5 minutes' WHEN a = 'A2' THEN '1 minute' ELSE '10 minutes' END)
