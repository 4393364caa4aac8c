-- Streams that share filters. Made when the first stream of a group joins, so that schemas without one stay as they are.

-- Terms of a stream name its group; retired streams count too.
CREATE OR REPLACE FUNCTION {schema}.group_members(wanted text) RETURNS SETOF text
LANGUAGE sql STABLE SET enable_seqscan = off AS $body$
    SELECT s.stream FROM {schema}.streams s WHERE wanted = (
        SELECT convert_from(j.body, 'UTF8')::jsonb ->> 'group' FROM {schema}.journal j
        WHERE j.stream = s.stream AND j.seq = s.terms_seq AND j.kind = 'terms'
    )
    ORDER BY s.stream
$body$;

-- What the streams of a group but one have spent of the blocks that they share.
CREATE OR REPLACE FUNCTION {schema}.spent_elsewhere(name text, wanted text)
RETURNS TABLE (block text, rho bigint, delta bigint)
LANGUAGE plpgsql STABLE AS $body$
DECLARE
    members text[] := ARRAY(SELECT {schema}.group_members(wanted));
    wrong text;
BEGIN
    SELECT k.stream || ', block ' || k.block INTO wrong FROM {schema}.blocks k
    WHERE k.stream = ANY (members) AND k.mark <> {schema}.block_mark(k.block, k.rho, k.delta) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% disagrees with the mark beside it', wrong USING ERRCODE = 'ZF002';
    END IF;
    RETURN QUERY SELECT b.block, coalesce(sum(k.rho), 0)::bigint, coalesce(sum(k.delta), 0)::bigint
    FROM unnest(ARRAY['stream', 'user', 'total']) AS b (block)
    LEFT JOIN {schema}.blocks k ON k.block = b.block AND k.stream = ANY (members) AND k.stream <> name
    GROUP BY b.block;
END
$body$;

-- Write a charge that was found to fit beside the other streams of the group, under the group's lock and the stream's.
CREATE OR REPLACE FUNCTION {schema}.charge_in_group(
    name text, seen_seq bigint, seen_chain bytea, token bytea,
    opens bigint, closes bigint, cost_rho bigint, cost_delta bigint, names text[],
    OUT spent_rho bigint, OUT spent_delta bigint, OUT last_seq bigint, OUT last_chain bytea
)
LANGUAGE plpgsql SET enable_seqscan = off AS $body$
DECLARE
    head {schema}.streams%ROWTYPE := {schema}.lock_stream(name, seen_seq, seen_chain);
    known {schema}.windows%ROWTYPE;
    before bigint;
    marked bigint;
    written integer;
    room_rho bigint := head.capacity_rho - cost_rho;
    room_delta bigint := head.capacity_delta - cost_delta;
    total_room_rho bigint := coalesce(head.total_rho, head.capacity_rho) - cost_rho;
    total_room_delta bigint := coalesce(head.total_delta, head.capacity_delta) - cost_delta;
BEGIN
    SELECT b.marks INTO before FROM {schema}.read_blocks(name, names) b;
    INSERT INTO {schema}.blocks AS k
    SELECT name, b.block, cost_rho, cost_delta, {schema}.block_mark(b.block, cost_rho, cost_delta) FROM unnest(names) AS b (block)
    ON CONFLICT (stream, block) DO UPDATE
    SET rho = k.rho + excluded.rho, delta = k.delta + excluded.delta,
        mark = {schema}.block_mark(k.block, k.rho + excluded.rho, k.delta + excluded.delta)
    WHERE k.rho <= CASE k.block WHEN 'total' THEN total_room_rho ELSE room_rho END
    AND k.delta <= CASE k.block WHEN 'total' THEN total_room_delta ELSE room_delta END;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written <> cardinality(names) OR room_rho < 0 OR room_delta < 0 THEN
        RAISE EXCEPTION 'a block changed inside a transaction' USING ERRCODE = 'ZF002';
    END IF;
    known := ROW(
        name, opens, closes, 'charged', 1, cost_rho, cost_delta, array_to_string(names, ','), NULL, token || int4send(1), 0);
    known.mark := {schema}.window_mark(known);
    INSERT INTO {schema}.windows SELECT known.*;
    SELECT b.marks, b.rho, b.delta INTO marked, spent_rho, spent_delta FROM {schema}.read_blocks(name, names) b;
    head.digest := {schema}.turn({schema}.turn(head.digest, before, known.mark), 0, marked);
    head.seq := head.seq + 1;
    head.chain := {schema}.append(
        name, head.seq, head.chain, 'charge', opens, closes, cost_rho, cost_delta, known.blocks, '');
    PERFORM {schema}.save(head);
    last_seq := head.seq;
    last_chain := head.chain;
END
$body$;
