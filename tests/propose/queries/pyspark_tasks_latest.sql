-- after: HubertFijolek1/PySpark_Pandas_Tasks, pyspark_tasks.py, the latest entry of each customer by a query of WITH
-- line: 5:5 row_number
with ranked as (
  select a, b, v,
    dense_rank() over (partition by a order by b desc) as place
  from tab
)
select * from ranked where place = 1
