-- Schema version 1 of the PostgreSQL ledger: one schema, many streams, a row of `streams` for each.
--
-- `journal` is append-only and chained by hashes; `windows`, `blocks` and the counters in `streams` are its running
-- summary. Whoever changes a stream locks its row of `streams` first, so that its chain stays linear whoever writes.
-- The functions are one transaction each when called by themselves. {schema} is filled in, quoted.
--
-- Errors of ours: ZF001 an older copy, ZF002 contradicting tables, ZF003 the window is sealed, ZF004 no such
-- refund, ZF005 no refund to users who were charged again.

CREATE TABLE {schema}.meta (key text PRIMARY KEY, value text NOT NULL);

CREATE TABLE {schema}.streams (
    stream text COLLATE "C" PRIMARY KEY,
    unit text NOT NULL,
    capacity_rho bigint NOT NULL,
    capacity_delta bigint NOT NULL,
    total_rho bigint,
    total_delta bigint,
    specification text NOT NULL,
    salt bytea NOT NULL,
    seq bigint NOT NULL,      -- last row of the journal
    chain bytea NOT NULL,     -- and its link
    windows bigint NOT NULL,
    sealed bigint NOT NULL,
    charged bigint NOT NULL,  -- sum of rho over windows
    spent bigint NOT NULL,    -- sum of rho over blocks
    users bytea NOT NULL      -- digest of the users' budgets
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
    PRIMARY KEY (stream, open_ms, close_ms)
);
CREATE INDEX unacknowledged ON {schema}.windows (stream, sealed_seq) WHERE state = 'sealed';

CREATE TABLE {schema}.blocks (
    stream text COLLATE "C" NOT NULL,
    block text COLLATE "C" NOT NULL,
    rho bigint NOT NULL,
    delta bigint NOT NULL,
    PRIMARY KEY (stream, block)
) WITH (fillfactor = 50);

CREATE TABLE {schema}.users (
    stream text COLLATE "C" NOT NULL,
    bucket integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (stream, bucket)
);
ALTER TABLE {schema}.users ALTER COLUMN body SET STORAGE EXTERNAL;  -- hashes do not compress

-- The stream's row, locked until the transaction ends.
CREATE FUNCTION {schema}.lock_stream(name text, seen_seq bigint, seen_chain bytea) RETURNS {schema}.streams
LANGUAGE plpgsql AS $body$
DECLARE
    head {schema}.streams%ROWTYPE;
BEGIN
    -- Durable when it returns, whatever a session or a connection pooler in between says.
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- The row seen is looked up before the lock is waited for: rows of a journal never change.
    SELECT * INTO head FROM {schema}.streams s WHERE s.stream = name AND (seen_seq = 0 OR EXISTS (
        SELECT FROM {schema}.journal j WHERE j.stream = name AND j.seq = seen_seq AND j.chain = seen_chain
    )) FOR UPDATE;
    IF NOT FOUND OR head.seq < seen_seq THEN
        RAISE EXCEPTION 'a journal row is gone' USING ERRCODE = 'ZF001', DETAIL = seen_seq::text;
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

-- Charge windows in order. `digest`: of the users after they were charged; NULL for other units.
-- verdict: charged; again; repeated (by this very call, whose answer was lost); interrupted; refused; sealed.
CREATE FUNCTION {schema}.charge(
    name text, seen_seq bigint, seen_chain bytea, token bytea,
    opens bigint[], closes bigint[], rhos bigint[], deltas bigint[], block_lists text[], digest bytea
) RETURNS TABLE (
    verdict text, draw integer, charged_rho bigint, charged_delta bigint, spent_rho bigint, spent_delta bigint,
    refusing text, refusing_rho bigint, refusing_delta bigint, last_seq bigint, last_chain bytea
)
LANGUAGE plpgsql SET enable_seqscan = off AS $body$
DECLARE
    head {schema}.streams%ROWTYPE := {schema}.lock_stream(name, seen_seq, seen_chain);
    known {schema}.windows%ROWTYPE;
    names text[];
    visible text[];
    mine bytea;
    before bigint := head.seq;
    room_rho bigint;
    room_delta bigint;
    total_room_rho bigint;
    total_room_delta bigint;
    is_paid boolean;
    written integer;
    joined text;
BEGIN
    FOR i IN 1 .. cardinality(opens) LOOP
        mine := token || int4send(i);
        names := string_to_array(block_lists[i], ',');
        visible := CASE WHEN digest IS NULL THEN names ELSE ARRAY['user'] END;
        refusing := NULL;
        spent_rho := NULL;
        SELECT * INTO known FROM {schema}.windows w
        WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
        IF FOUND THEN
            verdict := CASE
                WHEN known.state <> 'charged' THEN 'sealed'
                WHEN known.attempt = mine THEN 'repeated'
                WHEN known.draws >= 2 THEN 'interrupted'
                ELSE 'again' END;
            IF verdict = 'again' THEN
                known.draws := known.draws + 1;
                UPDATE {schema}.windows w SET draws = known.draws, attempt = mine
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
            IF cardinality(names) = 1 AND digest IS NULL AND head.total_rho IS NULL THEN
                -- The usual case in one statement; the cap stands in the condition of the update itself.
                UPDATE {schema}.blocks k SET rho = k.rho + rhos[i], delta = k.delta + deltas[i]
                WHERE k.stream = name AND k.block = names[1]
                AND k.rho <= head.capacity_rho - rhos[i] AND k.delta <= head.capacity_delta - deltas[i]
                RETURNING k.rho, k.delta INTO spent_rho, spent_delta;
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
                    -- Somebody with a record in every window; nobody is refused for having no budget left.
                    IF digest IS NOT NULL AND room_rho >= 0 AND room_delta >= 0 AND NOT EXISTS (
                        SELECT FROM {schema}.blocks k WHERE k.stream = name AND k.block = 'user'
                        AND (k.rho > room_rho OR k.delta > room_delta)
                    ) THEN
                        names := names || 'user'::text;
                    END IF;
                    INSERT INTO {schema}.blocks AS k
                    SELECT name, b.block, rhos[i], deltas[i] FROM unnest(names) AS b (block)
                    ON CONFLICT (stream, block) DO UPDATE
                    SET rho = k.rho + excluded.rho, delta = k.delta + excluded.delta
                    WHERE k.rho <= CASE k.block WHEN 'total' THEN total_room_rho ELSE room_rho END
                    AND k.delta <= CASE k.block WHEN 'total' THEN total_room_delta ELSE room_delta END;
                    GET DIAGNOSTICS written = ROW_COUNT;
                    IF written <> cardinality(names) THEN
                        RAISE EXCEPTION 'a block changed inside a transaction' USING ERRCODE = 'ZF002';
                    END IF;
                END IF;
            END IF;
            IF verdict = 'charged' THEN
                joined := array_to_string(names, ',');
                INSERT INTO {schema}.windows VALUES (
                    name, opens[i], closes[i], 'charged', 1, rhos[i], deltas[i], joined, NULL, mine);
                head.windows := head.windows + 1;
                head.charged := head.charged + rhos[i];
                head.spent := head.spent + rhos[i] * cardinality(names);
                head.users := coalesce(digest, head.users);
                head.seq := head.seq + 1;
                head.chain := {schema}.append(
                    name, head.seq, head.chain, 'charge', opens[i], closes[i], rhos[i], deltas[i],
                    joined, coalesce(digest, ''));
            END IF;
        END IF;
        IF spent_rho IS NULL THEN
            SELECT coalesce(max(k.rho), 0), coalesce(max(k.delta), 0) INTO spent_rho, spent_delta
            FROM {schema}.blocks k WHERE k.stream = name AND k.block = ANY (visible) AND k.block <> 'total';
        END IF;
        last_seq := head.seq;
        last_chain := head.chain;
        RETURN NEXT;
    END LOOP;
    IF head.seq > before THEN
        UPDATE {schema}.streams s
        SET seq = head.seq, chain = head.chain, windows = head.windows, charged = head.charged, spent = head.spent,
            users = head.users
        WHERE s.stream = name;
    END IF;
END
$body$;

-- Seal windows and take refunds back. `digests`: of the users after they were refunded, in hex, or ''.
-- `fresh`: how many were sealed; those that this very call had sealed before its answer was lost are left alone.
CREATE FUNCTION {schema}.seal(
    name text, seen_seq bigint, seen_chain bytea, token bytea,
    opens bigint[], closes bigint[], rhos bigint[], deltas bigint[], bodies bytea[], digests text[],
    OUT fresh integer, OUT last_seq bigint, OUT last_chain bytea
)
LANGUAGE plpgsql SET enable_seqscan = off AS $body$
DECLARE
    head {schema}.streams%ROWTYPE := {schema}.lock_stream(name, seen_seq, seen_chain);
    known {schema}.windows%ROWTYPE;
    is_known boolean;
    mine bytea;
    paid integer;
BEGIN
    fresh := 0;
    FOR i IN 1 .. cardinality(opens) LOOP
        mine := token || int4send(i);
        SELECT * INTO known FROM {schema}.windows w
        WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
        is_known := FOUND;
        IF is_known AND known.state <> 'charged' THEN
            CONTINUE WHEN known.attempt = mine;
            RAISE EXCEPTION 'sealed' USING ERRCODE = 'ZF003', DETAIL = opens[i]::text;
        END IF;
        fresh := fresh + 1;
        head.seq := head.seq + 1;
        head.chain := {schema}.append(
            name, head.seq, head.chain, 'seal', opens[i], closes[i], rhos[i], deltas[i], digests[i], bodies[i]);
        head.sealed := head.sealed + 1;
        IF is_known THEN
            UPDATE {schema}.windows w
            SET state = 'sealed', sealed_seq = head.seq, rho = w.rho - rhos[i], delta = w.delta - deltas[i],
                attempt = mine
            WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
        ELSE  -- a refusal: nothing was charged
            INSERT INTO {schema}.windows VALUES (
                name, opens[i], closes[i], 'sealed', 0, 0, 0, '', head.seq, mine);
            head.windows := head.windows + 1;
        END IF;
        IF rhos[i] <> 0 OR deltas[i] <> 0 THEN
            -- What a second draw used is not known; and users know the last window only that they were charged for.
            IF NOT is_known OR known.draws <> 1 OR rhos[i] > known.rho OR deltas[i] > known.delta THEN
                RAISE EXCEPTION 'no such refund' USING ERRCODE = 'ZF004', DETAIL = format(
                    '%s %s %s', opens[i],
                    CASE WHEN is_known AND known.draws = 1 THEN known.rho ELSE 0 END,
                    CASE WHEN is_known AND known.draws = 1 THEN known.delta ELSE 0 END);
            END IF;
            IF digests[i] <> '' AND (opens[i], closes[i]) <> (
                SELECT j.open_ms, j.close_ms FROM {schema}.journal j
                WHERE j.stream = name AND j.kind = 'charge' ORDER BY j.seq DESC LIMIT 1
            ) THEN
                RAISE EXCEPTION 'a later window was charged' USING ERRCODE = 'ZF005', DETAIL = opens[i]::text;
            END IF;
            UPDATE {schema}.blocks k SET rho = k.rho - rhos[i], delta = k.delta - deltas[i]
            WHERE k.stream = name AND k.block = ANY (string_to_array(known.blocks, ','))
            AND k.rho >= rhos[i] AND k.delta >= deltas[i];
            GET DIAGNOSTICS paid = ROW_COUNT;
            IF paid <> cardinality(string_to_array(known.blocks, ',')) THEN
                RAISE EXCEPTION 'a block has spent less than is refunded' USING ERRCODE = 'ZF002';
            END IF;
            head.charged := head.charged - rhos[i];
            head.spent := head.spent - rhos[i] * paid;
            IF digests[i] <> '' THEN
                head.users := decode(digests[i], 'hex');
            END IF;
        END IF;
    END LOOP;
    UPDATE {schema}.streams s
    SET seq = head.seq, chain = head.chain, windows = head.windows, sealed = head.sealed, charged = head.charged,
        spent = head.spent, users = head.users
    WHERE s.stream = name AND fresh > 0;
    last_seq := head.seq;
    last_chain := head.chain;
END
$body$;

-- Note that the sink has some windows; what is not sealed, or acknowledged already, is left alone.
CREATE FUNCTION {schema}.acknowledge(
    name text, seen_seq bigint, seen_chain bytea, opens bigint[], closes bigint[],
    OUT last_seq bigint, OUT last_chain bytea
)
LANGUAGE plpgsql SET enable_seqscan = off AS $body$
DECLARE
    head {schema}.streams%ROWTYPE := {schema}.lock_stream(name, seen_seq, seen_chain);
    before bigint := head.seq;
    state text;
BEGIN
    FOR i IN 1 .. cardinality(opens) LOOP
        -- By the primary key alone: the index of unacknowledged windows would be read from its start.
        SELECT w.state INTO state FROM {schema}.windows w
        WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
        IF state = 'sealed' THEN
            UPDATE {schema}.windows w SET state = 'acknowledged'
            WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
            head.seq := head.seq + 1;
            head.chain := {schema}.append(
                name, head.seq, head.chain, 'acknowledge', opens[i], closes[i], 0, 0, '', '');
        END IF;
    END LOOP;
    UPDATE {schema}.streams s SET seq = head.seq, chain = head.chain WHERE s.stream = name AND head.seq > before;
    last_seq := head.seq;
    last_chain := head.chain;
END
$body$;
