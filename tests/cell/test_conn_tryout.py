# SPDX-License-Identifier: Apache-2.0
"""
The session that started the connectors, by our API: a table through a source
into a queue, the queue through a sink into a copy, and documents with nested
members into a table.  What it prints is compared whole, positions and times
aside.
"""
import json
import re

from queenlib import wait_until

ORDERS = """create table orders (
  id bigint primary key, customer jsonb not null, status text not null,
  total numeric(12,2) not null, created_at timestamptz not null default now())"""
ADA = '"customer":{"name":"Ada","tier":"gold"}'
GRACE = '"customer":{"name":"Grace","tier":"gold"}'
LINUS = '"customer":{"name":"Linus","tier":"silver"}'
READ = [
    ["1", '{"op":"r","table":"public.orders","key":{"id":1},"after":{"id":1,'
     + ADA + ',"status":"new","total":42.00,"created_at":T},"before":null,'
     '"lsn":L,"ts":T,"seq":0}'],
    ["2", '{"op":"r","table":"public.orders","key":{"id":2},"after":{"id":2,'
     + LINUS + ',"status":"new","total":17.50,"created_at":T},"before":null,'
     '"lsn":L,"ts":T,"seq":1}']]
CHANGED = [
    ["1", '{"op":"u","table":"public.orders","key":{"id":1},"after":{"id":1,'
     + ADA + ',"status":"paid","total":42.00,"created_at":T},"before":null,'
     '"lsn":L,"xid":X,"ts":T,"seq":0}'],
    ["2", '{"op":"d","table":"public.orders","key":{"id":2},"after":null,'
     '"before":{"id":2},"lsn":L,"xid":X,"ts":T,"seq":1}'],
    ["3", '{"op":"c","table":"public.orders","key":{"id":3},"after":{"id":3,'
     + GRACE + ',"status":"new","total":99.90,"created_at":T},"before":null,'
     '"lsn":L,"xid":X,"ts":T,"seq":0}']]


def popped(cell, **query):
    """The messages of one pop."""
    path = "/api/v1/pop/queue/orders?batch=10&partitions=10" \
        "&consumerGroup=reader&autoAck=true&wait=true&timeout=20000" + "".join(
            "&%s=%s" % kv for kv in query.items())
    reply = cell.get(path, timeout=30)
    return reply.body["messages"] if reply.status == 200 else []


def masked(message):
    """The event compactly, positions and times by one letter."""
    text = json.dumps(message["data"], separators=(",", ":"))
    text = re.sub(r'"(lsn)":"[0-9A-F]+/[0-9A-F]+"', r'"\1":L', text)
    text = re.sub(r'"xid":\d+', '"xid":X', text)
    text = re.sub(r'"(ts|created_at)":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+'
                  r'(Z|\+00:00)"', r'"\1":T', text)
    # the client's parser takes zeros off the end of a number
    return [message["partition"], re.sub(
        r'"total":(\d+)\.(\d)(?!\d)', r'"total":\1.\g<2>0', text)]


def test_orders_there_and_into_a_copy(cell, src, far, new_tool):
    far.run(ORDERS, """insert into orders (id, customer, status, total) values
      (1, '{"name": "Ada", "tier": "gold"}', 'new', 42.00),
      (2, '{"name": "Linus", "tier": "silver"}', 'new', 17.50)""")
    put(cell, "orders-src", {
        "kind": "source", "connection": far.connection(),
        "source": {"tables": [{"table": "public.orders", "queue": "orders"}]}})
    tool = src.tool()
    found = wait_until(lambda: popped(cell, subscriptionMode="all"))
    assert sorted(map(masked, found)) == READ
    far.rows("update orders set status = 'paid' where id = 1")
    far.rows("""begin; insert into orders (id, customer, status, total) values
      (3, '{"name": "Grace", "tier": "gold"}', 'new', 99.90);
      delete from orders where id = 2; commit""")
    found = []
    wait_until(lambda: found.extend(popped(cell)) or len(found) >= 3)
    assert sorted(map(masked, found)) == CHANGED
    one, gone, new = (m["transactionId"] for m in sorted(
        found, key=lambda m: m["partition"]))
    assert re.fullmatch(r"pg:[0-9a-f]{8}:[0-9A-F]{16}:0", one)
    # one transaction of the table is one of the queue
    assert gone[:-1] == new[:-1] and (gone[-1], new[-1]) == ("1", "0")
    assert tool.await_status("orders-src", phase="streaming")["messages"] == 5

    far.run("create table orders_copy (like orders including all)")
    new_tool("queen-pgsink").start()
    put(cell, "orders-copy", {
        "kind": "sink", "connection": far.connection(),
        "sink": {"queue": "orders", "table": "public.orders_copy",
                 "mode": "cdc"}})
    copy = "select id, customer::text, status, total::text from orders_copy" \
        " order by id"
    wait_until(lambda: far.rows(copy) == [
        (1, '{"name": "Ada", "tier": "gold"}', "paid", "42.00"),
        (3, '{"name": "Grace", "tier": "gold"}', "new", "99.90")])


def put(cell, name, document):
    made = cell.request("PUT", "/api/v1/connectors/" + name, document)
    assert made.status == 200, made


def test_nested_documents_into_a_table(cell, far, new_tool):
    far.run("""create table invoices (
      id bigint primary key, customer jsonb, lines jsonb, total numeric(12,2),
      customer_tier text generated always as (customer->>'tier') stored,
      city text generated always as (customer->'address'->>'city') stored,
      queen_offset bigint)""")
    put(cell, "invoices-sink", {
        "kind": "sink", "connection": far.connection(),
        "sink": {"queue": "invoices", "table": "public.invoices",
                 "mode": "upsert", "metadata": {"offset": "queen_offset"}}})
    cell.push("invoices", [
        {"id": 7, "customer": {"name": "Ada", "tier": "gold",
                               "address": {"city": "Turin"}},
         "lines": [{"sku": "A1", "qty": 2}], "total": "12.50",
         "note": "no column, ignored"}, {"id": 7, "total": 15}], "7")
    new_tool("queen-pgsink").start()
    wait_until(lambda: far.rows(
        "select id, customer::text, lines::text, total::text, customer_tier,"
        " city, queen_offset from invoices") == [
        (7, '{"name": "Ada", "tier": "gold", "address": {"city": "Turin"}}',
         '[{"qty": 2, "sku": "A1"}]', "15.00", "gold", "Turin", 1)])
