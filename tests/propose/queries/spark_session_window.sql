-- quoted: apache/spark 4.1.1, the first example of `session_window` in the function's description (SessionWindow.scala), without ORDER BY
SELECT a, session_window.start, session_window.end, count(*) as cnt FROM tab GROUP by a, session_window(b, '5 minutes')
