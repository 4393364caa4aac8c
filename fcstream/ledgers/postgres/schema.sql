-- Schema version 5 of the PostgreSQL ledger: one schema, many streams, a row of `streams` for each.
--
-- `journal` is append-only and chained by hashes; `windows`, `blocks` and `settings` are its running summary.
-- Every row of the summary has a mark, a hash of its columns, that is checked whenever the row is read; the head in
-- `streams` holds the sum of all marks (see journal.py). Whoever changes a stream locks its row of `streams` first, so
-- that its chain stays linear whoever writes.
-- The functions are one transaction each when called by themselves. {schema} is filled in, quoted.
--
-- Errors of ours, with the name of the stream as their hint: ZF001 an older copy, ZF002 contradicting tables, ZF003 the
-- window is sealed, ZF004 no such refund, ZF005 the stream was retired, ZF006 another process holds the lease, ZF007
-- other terms than the caller has seen.

CREATE TABLE {schema}.meta (key text PRIMARY KEY, value text NOT NULL);

CREATE TABLE {schema}.streams (
    stream text COLLATE "C" PRIMARY KEY,
    retired boolean NOT NULL,
    capacity_rho bigint NOT NULL,   -- caps as row terms_seq of the journal has them
    capacity_delta bigint NOT NULL,
    total_rho bigint,
    total_delta bigint,
    terms_seq bigint NOT NULL,      -- row that says what the stream is about
    salt bytea NOT NULL,
    seq bigint NOT NULL,            -- last row of the journal
    chain bytea NOT NULL,           -- and its link
    digest bigint NOT NULL,         -- sum of the marks of windows, blocks and settings, modulo 2^60
    mark bigint NOT NULL
) WITH (fillfactor = 10);     -- hot rows: room for new versions on their page

CREATE TABLE {schema}.journal (
    stream text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    open_ms bigint NOT NULL,
    close_ms bigint NOT NULL,
    rho bigint NOT NULL,
    delta bigint NOT NULL,
    blocks text NOT NULL,
    body bytea NOT NULL,
    chain bytea NOT NULL,
    PRIMARY KEY (stream, seq)
);

CREATE TABLE {schema}.windows (
    stream text COLLATE "C" NOT NULL,
    open_ms bigint NOT NULL,
    close_ms bigint NOT NULL,
    state text NOT NULL,
    draws integer NOT NULL,
    rho bigint NOT NULL,
    delta bigint NOT NULL,
    blocks text NOT NULL,
    sealed_seq bigint,
    attempt bytea,            -- which call charged or sealed it last: a call whose answer was lost is known again
    mark bigint NOT NULL,
    PRIMARY KEY (stream, open_ms, close_ms)
);
CREATE INDEX unacknowledged ON {schema}.windows (stream, sealed_seq) WHERE state = 'sealed';

CREATE TABLE {schema}.blocks (
    stream text COLLATE "C" NOT NULL,
    block text COLLATE "C" NOT NULL,
    rho bigint NOT NULL,
    delta bigint NOT NULL,
    mark bigint NOT NULL,
    PRIMARY KEY (stream, block)
) WITH (fillfactor = 50);

-- Which process answers a stream, and until when by this server's clock.
CREATE TABLE {schema}.leases (
    name text COLLATE "C" PRIMARY KEY,
    holder text NOT NULL,
    backend integer NOT NULL,  -- of the holder's session: one that is gone needs no waiting for the deadline
    expires timestamptz NOT NULL
) WITH (fillfactor = 10);

CREATE FUNCTION {schema}.is_held(lease {schema}.leases) RETURNS boolean LANGUAGE sql AS $body$
    SELECT lease.expires > clock_timestamp()
    AND EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = lease.backend)
$body$;

-- Take a lease that nobody holds; whether it is the claimant's now.
CREATE FUNCTION {schema}.take_lease(wanted text, claimant text, seconds double precision) RETURNS boolean
LANGUAGE plpgsql AS $body$
BEGIN
    IF EXISTS (SELECT FROM {schema}.leases l WHERE l.name = wanted AND {schema}.is_held(l)) THEN
        RETURN false;  -- asked often, so without a lock
    END IF;
    INSERT INTO {schema}.leases VALUES (wanted, claimant, 0, '-infinity') ON CONFLICT DO NOTHING;
    -- Not while a transaction of the former holder is under way: see lock_stream.
    PERFORM FROM {schema}.leases l WHERE l.name = wanted FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE {schema}.leases l
    SET holder = claimant, backend = pg_backend_pid(), expires = clock_timestamp() + make_interval(secs => seconds)
    WHERE l.name = wanted AND NOT {schema}.is_held(l);
    RETURN FOUND;
END
$body$;

-- Extend one's own lease; false: another has taken it.
CREATE FUNCTION {schema}.renew_lease(wanted text, claimant text, seconds double precision) RETURNS boolean
LANGUAGE plpgsql AS $body$
BEGIN
    UPDATE {schema}.leases l
    SET backend = pg_backend_pid(), expires = clock_timestamp() + make_interval(secs => seconds)
    WHERE l.name = wanted AND l.holder = claimant;
    RETURN FOUND;
END
$body$;

CREATE TABLE {schema}.settings (
    stream text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text NOT NULL,
    mark bigint NOT NULL,
    PRIMARY KEY (stream, key)
);

-- 60 bits of a hash; of a row: the table's first letter and its columns.
CREATE FUNCTION {schema}.mark(line text) RETURNS bigint LANGUAGE sql AS $body$
    SELECT ('x' || left(encode(sha256(convert_to(line, 'UTF8')), 'hex'), 15))::bit(60)::bigint
$body$;

CREATE FUNCTION {schema}.window_mark(w {schema}.windows) RETURNS bigint LANGUAGE sql AS $body$
    SELECT {schema}.mark(
        'w|' || w.open_ms || '|' || w.close_ms || '|' || w.state || '|' || w.draws || '|' || w.rho || '|' || w.delta
        || '|' || w.blocks || '|' || coalesce(w.sealed_seq::text, 'None'))
$body$;

CREATE FUNCTION {schema}.block_mark(block text, rho bigint, delta bigint) RETURNS bigint LANGUAGE sql AS $body$
    SELECT {schema}.mark('b|' || block || '|' || rho || '|' || delta)
$body$;

CREATE FUNCTION {schema}.head_mark(s {schema}.streams) RETURNS bigint LANGUAGE sql AS $body$
    SELECT {schema}.mark(concat_ws(
        '|', 'h', s.retired, s.capacity_rho, s.capacity_delta, coalesce(s.total_rho, -1), coalesce(s.total_delta, -1),
        s.terms_seq, encode(s.salt, 'hex'), s.seq, encode(s.chain, 'hex'), s.digest))
$body$;

-- A sum of marks after a row took another's place.
CREATE FUNCTION {schema}.turn(digest bigint, old bigint, new bigint) RETURNS bigint LANGUAGE sql AS $body$
    SELECT (digest - old + new) & 1152921504606846975
$body$;

-- Sum of the marks of some blocks, each of which is checked, and what the most charged one but the total has spent.
-- One by one, each by its primary key: a plan for all could read every block of the stream.
CREATE FUNCTION {schema}.read_blocks(name text, wanted text[], OUT marks bigint, OUT rho bigint, OUT delta bigint)
LANGUAGE plpgsql AS $body$
DECLARE
    each text;
    known {schema}.blocks%ROWTYPE;
BEGIN
    marks := 0;
    rho := 0;
    delta := 0;
    FOREACH each IN ARRAY wanted LOOP
        SELECT * INTO known FROM {schema}.blocks k WHERE k.stream = name AND k.block = each;
        CONTINUE WHEN NOT FOUND;
        IF known.mark <> {schema}.block_mark(known.block, known.rho, known.delta) THEN
            RAISE EXCEPTION 'block % disagrees with the mark beside it', each USING ERRCODE = 'ZF002', HINT = name;
        END IF;
        marks := (marks + known.mark) & 1152921504606846975;
        IF each <> 'total' THEN
            rho := greatest(rho, known.rho);
            delta := greatest(delta, known.delta);
        END IF;
    END LOOP;
END
$body$;

-- The stream's row, locked until the transaction ends.
CREATE FUNCTION {schema}.lock_stream(name text, seen_seq bigint, seen_chain bytea) RETURNS {schema}.streams
LANGUAGE plpgsql AS $body$
DECLARE
    head {schema}.streams%ROWTYPE;
    claim text := current_setting('fcstream.lease', true);  -- the holder's token, a space, the lease's name
BEGIN
    -- Durable when it returns, whatever a session or a connection pooler in between says.
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- The row seen is looked up before the lock is waited for: rows of a journal never change.
    SELECT * INTO head FROM {schema}.streams s WHERE s.stream = name AND EXISTS (
        SELECT FROM {schema}.journal j WHERE j.stream = name AND j.seq = seen_seq AND j.chain = seen_chain
    ) FOR UPDATE;
    IF NOT FOUND OR head.seq < seen_seq OR head.retired THEN
        IF EXISTS (
            SELECT FROM {schema}.streams s JOIN {schema}.journal j ON j.stream = s.stream AND j.seq = seen_seq
            WHERE s.retired AND j.chain = seen_chain
        ) THEN
            RAISE EXCEPTION 'the stream was retired' USING ERRCODE = 'ZF005', HINT = name;
        END IF;
        RAISE EXCEPTION 'a journal row is gone' USING ERRCODE = 'ZF001', HINT = name, DETAIL = seen_seq::text;
    END IF;
    IF head.terms_seq > seen_seq THEN
        RAISE EXCEPTION 'the caps were lowered' USING ERRCODE = 'ZF007', HINT = name;
    END IF;
    IF head.mark <> {schema}.head_mark(head) THEN
        RAISE EXCEPTION 'the head disagrees with the mark beside it' USING ERRCODE = 'ZF002', HINT = name;
    END IF;
    IF claim <> '' THEN
        -- Held until this transaction ends: nobody takes the lease in between. Renewals are not kept waiting.
        PERFORM FROM {schema}.leases l
        WHERE l.name = substr(claim, strpos(claim, ' ') + 1) AND l.holder = split_part(claim, ' ', 1) FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'another process holds the lease' USING ERRCODE = 'ZF006';
        END IF;
    END IF;
    RETURN head;
END
$body$;

-- Write one row of the journal; returns its link.
CREATE FUNCTION {schema}.append(
    name text, seq bigint, chain bytea, kind text, open_ms bigint, close_ms bigint, rho bigint, delta bigint,
    blocks text, body bytea
) RETURNS bytea
LANGUAGE plpgsql AS $body$
DECLARE
    link bytea := sha256(
        chain
        || sha256(convert_to(
            seq || '|' || kind || '|' || open_ms || '|' || close_ms || '|' || rho || '|' || delta || '|' || blocks,
            'UTF8'))
        || sha256(body));
BEGIN
    INSERT INTO {schema}.journal VALUES (name, seq, kind, open_ms, close_ms, rho, delta, blocks, body, link);
    RETURN link;
END
$body$;

-- Write the head of a stream that is locked.
CREATE FUNCTION {schema}.save(head {schema}.streams) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    UPDATE {schema}.streams s
    SET seq = head.seq, chain = head.chain, digest = head.digest, terms_seq = head.terms_seq,
        capacity_rho = head.capacity_rho, capacity_delta = head.capacity_delta, total_rho = head.total_rho,
        total_delta = head.total_delta, retired = head.retired, mark = {schema}.head_mark(head)
    WHERE s.stream = head.stream;
END
$body$;

-- Add a stream with row 0 of its journal.
CREATE FUNCTION {schema}.create_stream(
    name text, caps bigint[], salt bytea, origin bytea, about bytea
) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    head {schema}.streams%ROWTYPE;
BEGIN
    INSERT INTO {schema}.streams VALUES (
        name, false, caps[1], caps[2], caps[3], caps[4], 0, salt, 0, origin, 0, 0)
    RETURNING * INTO head;
    head.chain := {schema}.append(name, 0, origin, 'terms', 0, 0, 0, 0, '', about);
    PERFORM {schema}.save(head);
END
$body$;

-- Say anew what a stream is about. Whether it may be said is the caller's care.
CREATE FUNCTION {schema}.set_terms(
    name text, seen_seq bigint, seen_chain bytea, caps bigint[], about bytea
) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    head {schema}.streams%ROWTYPE := {schema}.lock_stream(name, seen_seq, seen_chain);
BEGIN
    head.seq := head.seq + 1;
    head.chain := {schema}.append(name, head.seq, head.chain, 'terms', 0, 0, 0, 0, '', about);
    head.terms_seq := head.seq;
    head.capacity_rho := caps[1];
    head.capacity_delta := caps[2];
    head.total_rho := caps[3];
    head.total_delta := caps[4];
    PERFORM {schema}.save(head);
END
$body$;

-- End a stream: its rows stay under another name.
CREATE FUNCTION {schema}.retire(name text, seen_seq bigint, seen_chain bytea, later text, about bytea) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    head {schema}.streams%ROWTYPE := {schema}.lock_stream(name, seen_seq, seen_chain);
BEGIN
    head.seq := head.seq + 1;
    head.chain := {schema}.append(name, head.seq, head.chain, 'retire', 0, 0, 0, 0, '', about);
    head.retired := true;
    PERFORM {schema}.save(head);
    UPDATE {schema}.streams s SET stream = later WHERE s.stream = name;
    UPDATE {schema}.journal s SET stream = later WHERE s.stream = name;
    UPDATE {schema}.windows s SET stream = later WHERE s.stream = name;
    UPDATE {schema}.blocks s SET stream = later WHERE s.stream = name;
    UPDATE {schema}.settings s SET stream = later WHERE s.stream = name;
END
$body$;

-- Note that the sink has some windows of a stream that is locked; what is not sealed, or acknowledged already, is left
-- alone. Returns the head, which the caller saves.
CREATE FUNCTION {schema}.note_acknowledged(head {schema}.streams, opens bigint[], closes bigint[])
RETURNS {schema}.streams
LANGUAGE plpgsql SET enable_seqscan = off AS $body$
DECLARE
    known {schema}.windows%ROWTYPE;
    marked bigint;
BEGIN
    FOR i IN 1 .. cardinality(opens) LOOP
        -- By the primary key alone: the index of unacknowledged windows would be read from its start.
        SELECT * INTO known FROM {schema}.windows w
        WHERE w.stream = head.stream AND w.open_ms = opens[i] AND w.close_ms = closes[i];
        IF known.mark <> {schema}.window_mark(known) THEN
            RAISE EXCEPTION 'window % disagrees with the mark beside it', opens[i] USING ERRCODE = 'ZF002', HINT = head.stream;
        END IF;
        IF known.state = 'sealed' THEN
            known.state := 'acknowledged';
            marked := {schema}.window_mark(known);
            head.digest := {schema}.turn(head.digest, known.mark, marked);
            UPDATE {schema}.windows w SET state = 'acknowledged', mark = marked
            WHERE w.stream = head.stream AND w.open_ms = opens[i] AND w.close_ms = closes[i];
            head.seq := head.seq + 1;
            head.chain := {schema}.append(
                head.stream, head.seq, head.chain, 'acknowledge', opens[i], closes[i], 0, 0, '', '');
        END IF;
    END LOOP;
    RETURN head;
END
$body$;

-- Charge windows of one stream in order, after others (`acked`) were acknowledged.
-- verdict: charged; again; repeated (by this very call, whose answer was lost); interrupted; refused; sealed.
CREATE FUNCTION {schema}.charge(
    name text, seen_seq bigint, seen_chain bytea, token bytea,
    acked_opens bigint[], acked_closes bigint[],
    opens bigint[], closes bigint[], rhos bigint[], deltas bigint[], block_lists text[]
) RETURNS TABLE (
    verdict text, draw integer, charged_rho bigint, charged_delta bigint, spent_rho bigint, spent_delta bigint,
    refusing text, refusing_rho bigint, refusing_delta bigint, last_seq bigint, last_chain bytea
)
LANGUAGE plpgsql SET enable_seqscan = off AS $body$
DECLARE
    head {schema}.streams%ROWTYPE := {schema}.lock_stream(name, seen_seq, seen_chain);
    known {schema}.windows%ROWTYPE;
    names text[];
    mine bytea;
    before bigint := head.seq;
    room_rho bigint;
    room_delta bigint;
    total_room_rho bigint;
    total_room_delta bigint;
    is_paid boolean;
    written integer;
    marked bigint;
BEGIN
    head := {schema}.note_acknowledged(head, acked_opens, acked_closes);
    FOR i IN 1 .. cardinality(opens) LOOP
        mine := token || int4send(i);
        names := string_to_array(block_lists[i], ',');
        refusing := NULL;
        spent_rho := NULL;
        SELECT * INTO known FROM {schema}.windows w
        WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
        IF FOUND THEN
            IF known.mark <> {schema}.window_mark(known) THEN
                RAISE EXCEPTION 'window % disagrees with the mark beside it', opens[i] USING ERRCODE = 'ZF002', HINT = name;
            END IF;
            verdict := CASE
                WHEN known.state <> 'charged' THEN 'sealed'
                WHEN known.attempt = mine THEN 'repeated'
                WHEN known.draws >= 2 THEN 'interrupted'
                ELSE 'again' END;
            IF verdict = 'again' THEN
                known.draws := known.draws + 1;
                marked := {schema}.window_mark(known);
                head.digest := {schema}.turn(head.digest, known.mark, marked);
                UPDATE {schema}.windows w SET draws = known.draws, attempt = mine, mark = marked
                WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
                head.seq := head.seq + 1;
                head.chain := {schema}.append(
                    name, head.seq, head.chain, 'again', opens[i], closes[i], 0, 0, known.blocks, '');
            END IF;
            draw := known.draws;
            charged_rho := known.rho;
            charged_delta := known.delta;
        ELSE
            verdict := 'charged';
            draw := 1;
            charged_rho := rhos[i];
            charged_delta := deltas[i];
            IF head.total_rho IS NOT NULL THEN
                names := names || 'total'::text;
            END IF;
            is_paid := false;
            SELECT b.marks INTO marked FROM {schema}.read_blocks(name, names) b;
            IF cardinality(names) = 1 AND head.total_rho IS NULL THEN
                -- The usual case in one statement; the cap stands in the condition of the update itself.
                UPDATE {schema}.blocks k SET rho = k.rho + rhos[i], delta = k.delta + deltas[i],
                    mark = {schema}.block_mark(k.block, k.rho + rhos[i], k.delta + deltas[i])
                WHERE k.stream = name AND k.block = names[1]
                AND k.rho <= head.capacity_rho - rhos[i] AND k.delta <= head.capacity_delta - deltas[i];
                is_paid := FOUND;
            END IF;
            IF NOT is_paid THEN
                room_rho := head.capacity_rho - rhos[i];  -- differences of numbers >= 0 cannot overflow
                room_delta := head.capacity_delta - deltas[i];
                total_room_rho := coalesce(head.total_rho, head.capacity_rho) - rhos[i];
                total_room_delta := coalesce(head.total_delta, head.capacity_delta) - deltas[i];
                -- The first block without room.
                SELECT b.block, coalesce(k.rho, 0), coalesce(k.delta, 0) INTO refusing, refusing_rho, refusing_delta
                FROM unnest(names) WITH ORDINALITY AS b (block, place)
                LEFT JOIN {schema}.blocks k ON k.stream = name AND k.block = b.block
                WHERE coalesce(k.rho, 0) > CASE b.block WHEN 'total' THEN total_room_rho ELSE room_rho END
                OR coalesce(k.delta, 0) > CASE b.block WHEN 'total' THEN total_room_delta ELSE room_delta END
                ORDER BY b.place LIMIT 1;
                IF FOUND THEN
                    verdict := 'refused';
                ELSE
                    INSERT INTO {schema}.blocks AS k
                    SELECT name, b.block, rhos[i], deltas[i], {schema}.block_mark(b.block, rhos[i], deltas[i])
                    FROM unnest(names) AS b (block)
                    ON CONFLICT (stream, block) DO UPDATE
                    SET rho = k.rho + excluded.rho, delta = k.delta + excluded.delta,
                        mark = {schema}.block_mark(k.block, k.rho + excluded.rho, k.delta + excluded.delta)
                    WHERE k.rho <= CASE k.block WHEN 'total' THEN total_room_rho ELSE room_rho END
                    AND k.delta <= CASE k.block WHEN 'total' THEN total_room_delta ELSE room_delta END;
                    GET DIAGNOSTICS written = ROW_COUNT;
                    IF written <> cardinality(names) THEN
                        RAISE EXCEPTION 'a block changed inside a transaction' USING ERRCODE = 'ZF002', HINT = name;
                    END IF;
                END IF;
            END IF;
            IF verdict = 'charged' THEN
                known := ROW(
                    name, opens[i], closes[i], 'charged', 1, rhos[i], deltas[i], array_to_string(names, ','), NULL,
                    mine, 0);
                known.mark := {schema}.window_mark(known);
                INSERT INTO {schema}.windows SELECT known.*;
                head.digest := {schema}.turn(head.digest, marked, known.mark);
                SELECT b.marks, b.rho, b.delta INTO marked, spent_rho, spent_delta
                FROM {schema}.read_blocks(name, names) b;
                head.digest := {schema}.turn(head.digest, 0, marked);
                head.seq := head.seq + 1;
                head.chain := {schema}.append(
                    name, head.seq, head.chain, 'charge', opens[i], closes[i], rhos[i], deltas[i],
                    known.blocks, '');
            END IF;
        END IF;
        IF spent_rho IS NULL THEN
            SELECT b.rho, b.delta INTO spent_rho, spent_delta FROM {schema}.read_blocks(name, names) b;
        END IF;
        last_seq := head.seq;
        last_chain := head.chain;
        RETURN NEXT;
    END LOOP;
    IF head.seq > before THEN
        PERFORM {schema}.save(head);
    END IF;
END
$body$;

-- Seal windows and take refunds back.
-- `fresh`: how many were sealed; those that this very call had sealed before its answer was lost are left alone.
-- `refunded`: of how many the refund was taken. It is dropped, and the answer stands, where another process drew under
-- the same charge, because what that one used is not known. Turning the answer away instead would choose among answers
-- by their values.
CREATE FUNCTION {schema}.seal(
    name text, seen_seq bigint, seen_chain bytea, token bytea,
    opens bigint[], closes bigint[], rhos bigint[], deltas bigint[], bodies bytea[],
    OUT fresh integer, OUT refunded integer, OUT last_seq bigint, OUT last_chain bytea
)
LANGUAGE plpgsql SET enable_seqscan = off AS $body$
DECLARE
    head {schema}.streams%ROWTYPE := {schema}.lock_stream(name, seen_seq, seen_chain);
    known {schema}.windows%ROWTYPE;
    is_known boolean;
    old bigint;
    marked bigint;
    names text[];
    refund_rho bigint;
    refund_delta bigint;
    paid integer;
BEGIN
    fresh := 0;
    refunded := 0;
    FOR i IN 1 .. cardinality(opens) LOOP
        SELECT * INTO known FROM {schema}.windows w
        WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
        is_known := FOUND;
        IF is_known AND known.mark <> {schema}.window_mark(known) THEN
            RAISE EXCEPTION 'window % disagrees with the mark beside it', opens[i] USING ERRCODE = 'ZF002', HINT = name;
        END IF;
        IF is_known AND known.state <> 'charged' THEN
            CONTINUE WHEN known.attempt = token || int4send(i);
            RAISE EXCEPTION 'sealed' USING ERRCODE = 'ZF003', HINT = name, DETAIL = opens[i]::text;
        END IF;
        IF NOT is_known THEN  -- a refusal: nothing was charged
            known := ROW(name, opens[i], closes[i], 'sealed', 0, 0, 0, '', NULL, NULL, 0);
        END IF;
        IF rhos[i] > known.rho OR deltas[i] > known.delta THEN
            RAISE EXCEPTION 'no such refund' USING ERRCODE = 'ZF004', HINT = name, DETAIL = format(
                '%s %s %s', opens[i], known.rho, known.delta);
        END IF;
        refund_rho := rhos[i];
        refund_delta := deltas[i];
        IF known.draws > 1 THEN
            refund_rho := 0;
            refund_delta := 0;
        END IF;
        IF refund_rho <> 0 OR refund_delta <> 0 THEN
            names := string_to_array(known.blocks, ',');
            SELECT b.marks INTO marked FROM {schema}.read_blocks(name, names) b;
            UPDATE {schema}.blocks k SET rho = k.rho - refund_rho, delta = k.delta - refund_delta,
                mark = {schema}.block_mark(k.block, k.rho - refund_rho, k.delta - refund_delta)
            WHERE k.stream = name AND k.block = ANY (names) AND k.rho >= refund_rho AND k.delta >= refund_delta;
            GET DIAGNOSTICS paid = ROW_COUNT;
            IF paid <> cardinality(names) THEN
                RAISE EXCEPTION 'a block has spent less than is refunded' USING ERRCODE = 'ZF002', HINT = name;
            END IF;
            head.digest := {schema}.turn(head.digest, marked, 0);
            SELECT b.marks INTO marked FROM {schema}.read_blocks(name, names) b;
            head.digest := {schema}.turn(head.digest, 0, marked);
            refunded := refunded + 1;
        END IF;
        fresh := fresh + 1;
        head.seq := head.seq + 1;
        head.chain := {schema}.append(
            name, head.seq, head.chain, 'seal', opens[i], closes[i], refund_rho, refund_delta, '', bodies[i]);
        old := known.mark;
        known.state := 'sealed';
        known.sealed_seq := head.seq;
        known.rho := known.rho - refund_rho;
        known.delta := known.delta - refund_delta;
        known.attempt := token || int4send(i);
        known.mark := {schema}.window_mark(known);
        head.digest := {schema}.turn(head.digest, old, known.mark);
        IF is_known THEN
            UPDATE {schema}.windows w
            SET state = known.state, sealed_seq = known.sealed_seq, rho = known.rho, delta = known.delta,
                attempt = known.attempt, mark = known.mark
            WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
        ELSE
            INSERT INTO {schema}.windows SELECT known.*;
        END IF;
    END LOOP;
    IF fresh > 0 THEN
        PERFORM {schema}.save(head);
    END IF;
    last_seq := head.seq;
    last_chain := head.chain;
END
$body$;

-- Keep a public fact once, or find what is kept: by this stream, or by another part of it.
CREATE FUNCTION {schema}.keep_setting(
    name text, seen_seq bigint, seen_chain bytea, wanted text, proposed text,
    OUT kept text, OUT last_seq bigint, OUT last_chain bytea
)
LANGUAGE plpgsql AS $body$
DECLARE
    head {schema}.streams%ROWTYPE;
BEGIN
    -- Parts of one stream ask one after the other.
    PERFORM pg_advisory_xact_lock(hashtextextended('fcstream settings ' || split_part(name, '/', 1), 0));
    head := {schema}.lock_stream(name, seen_seq, seen_chain);
    SELECT s.value INTO kept FROM {schema}.settings s WHERE s.stream = name AND s.key = wanted;
    IF NOT FOUND THEN
        SELECT s.value INTO kept FROM {schema}.settings s JOIN {schema}.streams t ON t.stream = s.stream
        WHERE split_part(s.stream, '/', 1) = split_part(name, '/', 1) AND NOT t.retired AND s.key = wanted
        ORDER BY s.stream LIMIT 1;
        kept := coalesce(kept, proposed);
        INSERT INTO {schema}.settings VALUES (name, wanted, kept, {schema}.mark('s|' || wanted || '|' || kept));
        head.digest := {schema}.turn(head.digest, 0, {schema}.mark('s|' || wanted || '|' || kept));
        head.seq := head.seq + 1;
        head.chain := {schema}.append(
            name, head.seq, head.chain, 'setting', 0, 0, 0, 0, wanted, convert_to(kept, 'UTF8'));
        PERFORM {schema}.save(head);
    END IF;
    last_seq := head.seq;
    last_chain := head.chain;
END
$body$;

-- What follows is what ledgers call: each takes several streams, in one transaction, and answers in their order. The
-- windows of all streams stand in one list after the other; `counts` says how many are of each.

-- Lock streams, in one order whoever asks, so that no two transactions wait for each other.
CREATE FUNCTION {schema}.lock_streams(names text[]) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $body$
BEGIN
    IF cardinality(names) > 1 THEN
        PERFORM FROM {schema}.streams s WHERE s.stream = ANY (names) ORDER BY s.stream FOR UPDATE;
    END IF;
END
$body$;

-- See `charge`.
CREATE FUNCTION {schema}.charge_streams(
    names text[], seen_seqs bigint[], seen_chains bytea[], token bytea,
    acked_counts integer[], acked_opens bigint[], acked_closes bigint[],
    counts integer[], opens bigint[], closes bigint[], rhos bigint[], deltas bigint[], block_lists text[]
) RETURNS TABLE (
    verdict text, draw integer, charged_rho bigint, charged_delta bigint, spent_rho bigint, spent_delta bigint,
    refusing text, refusing_rho bigint, refusing_delta bigint, last_seq bigint, last_chain bytea
)
LANGUAGE plpgsql AS $body$
DECLARE
    each record;
BEGIN
    PERFORM {schema}.lock_streams(names);
    FOR each IN
        SELECT u.*, sum(u.n) OVER (ORDER BY u.place) AS last, sum(u.acked) OVER (ORDER BY u.place) AS last_acked
        FROM unnest(names, seen_seqs, seen_chains, acked_counts, counts)
        WITH ORDINALITY AS u (name, seq, chain, acked, n, place) ORDER BY u.place
    LOOP
        RETURN QUERY SELECT * FROM {schema}.charge(
            each.name, each.seq, each.chain, token,
            acked_opens[each.last_acked - each.acked + 1 : each.last_acked],
            acked_closes[each.last_acked - each.acked + 1 : each.last_acked],
            opens[each.last - each.n + 1 : each.last], closes[each.last - each.n + 1 : each.last],
            rhos[each.last - each.n + 1 : each.last], deltas[each.last - each.n + 1 : each.last],
            block_lists[each.last - each.n + 1 : each.last]);
    END LOOP;
END
$body$;

-- See `seal`.
CREATE FUNCTION {schema}.seal_streams(
    names text[], seen_seqs bigint[], seen_chains bytea[], token bytea,
    counts integer[], opens bigint[], closes bigint[], rhos bigint[], deltas bigint[], bodies bytea[]
) RETURNS TABLE (refunded integer, last_seq bigint, last_chain bytea)
LANGUAGE plpgsql AS $body$
DECLARE
    each record;
BEGIN
    PERFORM {schema}.lock_streams(names);
    FOR each IN
        SELECT u.*, sum(u.n) OVER (ORDER BY u.place) AS last
        FROM unnest(names, seen_seqs, seen_chains, counts) WITH ORDINALITY AS u (name, seq, chain, n, place)
        ORDER BY u.place
    LOOP
        RETURN QUERY SELECT s.refunded, s.last_seq, s.last_chain FROM {schema}.seal(
            each.name, each.seq, each.chain, token,
            opens[each.last - each.n + 1 : each.last], closes[each.last - each.n + 1 : each.last],
            rhos[each.last - each.n + 1 : each.last], deltas[each.last - each.n + 1 : each.last],
            bodies[each.last - each.n + 1 : each.last]) s;
    END LOOP;
END
$body$;

-- Note that the sink has some windows, without waiting for the disk: the next charge or seal brings it there. If the
-- server's machine fails before, releases are published again; no row of another kind can be lost by it, since a log is
-- written in order.
CREATE FUNCTION {schema}.acknowledge_streams(
    names text[], seen_seqs bigint[], seen_chains bytea[], counts integer[], opens bigint[], closes bigint[]
) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    each record;
    head {schema}.streams%ROWTYPE;
    before bigint;
BEGIN
    PERFORM {schema}.lock_streams(names);
    FOR each IN
        SELECT u.*, sum(u.n) OVER (ORDER BY u.place) AS last
        FROM unnest(names, seen_seqs, seen_chains, counts) WITH ORDINALITY AS u (name, seq, chain, n, place)
        ORDER BY u.place
    LOOP
        head := {schema}.lock_stream(each.name, each.seq, each.chain);
        before := head.seq;
        head := {schema}.note_acknowledged(
            head, opens[each.last - each.n + 1 : each.last], closes[each.last - each.n + 1 : each.last]);
        IF head.seq > before THEN
            PERFORM {schema}.save(head);
        END IF;
    END LOOP;
    PERFORM set_config('synchronous_commit', 'off', true);
END
$body$;

-- See `keep_setting`.
CREATE FUNCTION {schema}.keep_settings(
    names text[], seen_seqs bigint[], seen_chains bytea[], wanted text[], proposed text[]
) RETURNS TABLE (kept text, last_seq bigint, last_chain bytea)
LANGUAGE plpgsql AS $body$
DECLARE
    each record;
BEGIN
    -- In the order of `keep_setting`: first the parts of a stream, then their rows.
    PERFORM pg_advisory_xact_lock(hashtextextended('fcstream settings ' || r.root, 0))
    FROM (SELECT DISTINCT split_part(n.name, '/', 1) AS root FROM unnest(names) AS n (name) ORDER BY 1) r;
    PERFORM {schema}.lock_streams(names);
    FOR each IN
        SELECT u.* FROM unnest(names, seen_seqs, seen_chains, wanted, proposed)
        WITH ORDINALITY AS u (name, seq, chain, wanted, proposed, place) ORDER BY u.place
    LOOP
        RETURN QUERY SELECT * FROM {schema}.keep_setting(
            each.name, each.seq, each.chain, each.wanted, each.proposed);
    END LOOP;
END
$body$;
