"""DuckDB, from the directory of argument 1, on argument 2 rows in memory of its own: sorted, grouped and joined."""

import sys

sys.path.insert(0, sys.argv[1])
import duckdb

base = duckdb.connect(config={"memory_limit": "8GB", "threads": 2, "temp_directory": ""})
base.execute(
    "create table a as select i, hash(i) as k, md5(i::varchar) || md5((i * 7)::varchar) as v "
    f"from range({int(sys.argv[2])}) t(i)"
)
for query in (
    "select count(*), bit_xor(k), min(v), max(v) from a",
    "select sum(hash(i * r)) from (select i, row_number() over (order by v) as r from a)",
    "select i, v from a order by v limit 5 offset 100000",
    "select count(*), sum(n), max(s) from (select k % 1000 as g, count(*) as n, max(v) as s from a group by g)",
    "select count(*), sum(length(x.v || y.v)), bit_xor(x.k + y.i % 1000) from a x join a y on x.i = y.i + 1",
):
    print(base.execute(query).fetchall())
