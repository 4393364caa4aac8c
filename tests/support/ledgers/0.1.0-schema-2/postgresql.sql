CREATE SCHEMA {s};
CREATE FUNCTION {s}.acknowledge_streams(names text[], seen_seqs bigint[], seen_chains bytea[], counts integer[], opens bigint[], closes bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    each record;
    head "{s}".streams%ROWTYPE;
    before bigint;
BEGIN
    PERFORM "{s}".lock_streams(names);
    FOR each IN
        SELECT u.*, sum(u.n) OVER (ORDER BY u.place) AS last
        FROM unnest(names, seen_seqs, seen_chains, counts) WITH ORDINALITY AS u (name, seq, chain, n, place)
        ORDER BY u.place
    LOOP
        head := "{s}".lock_stream(each.name, each.seq, each.chain);
        before := head.seq;
        head := "{s}".note_acknowledged(
            head, opens[each.last - each.n + 1 : each.last], closes[each.last - each.n + 1 : each.last]);
        IF head.seq > before THEN
            PERFORM "{s}".save(head);
        END IF;
    END LOOP;
    PERFORM set_config('synchronous_commit', 'off', true);
END
$$;
CREATE FUNCTION {s}.append(name text, seq bigint, chain bytea, kind text, open_ms bigint, close_ms bigint, rho bigint, delta bigint, blocks text, body bytea) RETURNS bytea
    LANGUAGE plpgsql
    AS $$
DECLARE
    link bytea := sha256(
        chain
        || sha256(convert_to(
            seq || '|' || kind || '|' || open_ms || '|' || close_ms || '|' || rho || '|' || delta || '|' || blocks,
            'UTF8'))
        || sha256(body));
BEGIN
    INSERT INTO "{s}".journal VALUES (name, seq, kind, open_ms, close_ms, rho, delta, blocks, body, link);
    RETURN link;
END
$$;
CREATE FUNCTION {s}.block_mark(block text, rho bigint, delta bigint) RETURNS bigint
    LANGUAGE sql
    AS $$
    SELECT "{s}".mark('b|' || block || '|' || rho || '|' || delta)
$$;
CREATE FUNCTION {s}.charge(name text, seen_seq bigint, seen_chain bytea, token bytea, acked_opens bigint[], acked_closes bigint[], opens bigint[], closes bigint[], rhos bigint[], deltas bigint[], block_lists text[], digest bytea) RETURNS TABLE(verdict text, draw integer, charged_rho bigint, charged_delta bigint, spent_rho bigint, spent_delta bigint, refusing text, refusing_rho bigint, refusing_delta bigint, last_seq bigint, last_chain bytea)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    head "{s}".streams%ROWTYPE := "{s}".lock_stream(name, seen_seq, seen_chain);
    known "{s}".windows%ROWTYPE;
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
    touched text[];
    marked bigint;
BEGIN
    head := "{s}".note_acknowledged(head, acked_opens, acked_closes);
    FOR i IN 1 .. cardinality(opens) LOOP
        mine := token || int4send(i);
        names := string_to_array(block_lists[i], ',');
        visible := CASE WHEN digest IS NULL THEN names ELSE ARRAY['user'] END;
        refusing := NULL;
        spent_rho := NULL;
        SELECT * INTO known FROM "{s}".windows w
        WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
        IF FOUND THEN
            IF known.mark <> "{s}".window_mark(known) THEN
                RAISE EXCEPTION 'window % disagrees with the mark beside it', opens[i] USING ERRCODE = 'ZF002', HINT = name;
            END IF;
            verdict := CASE
                WHEN known.state <> 'charged' THEN 'sealed'
                WHEN known.attempt = mine THEN 'repeated'
                WHEN known.draws >= 2 THEN 'interrupted'
                ELSE 'again' END;
            IF verdict = 'again' THEN
                known.draws := known.draws + 1;
                marked := "{s}".window_mark(known);
                head.digest := "{s}".turn(head.digest, known.mark, marked);
                UPDATE "{s}".windows w SET draws = known.draws, attempt = mine, mark = marked
                WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
                head.seq := head.seq + 1;
                head.chain := "{s}".append(
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
            touched := CASE WHEN digest IS NULL OR 'user' = ANY (names) THEN names ELSE names || 'user'::text END;
            SELECT b.marks INTO marked FROM "{s}".read_blocks(name, touched) b;
            IF cardinality(names) = 1 AND digest IS NULL AND head.total_rho IS NULL THEN
                -- The usual case in one statement; the cap stands in the condition of the update itself.
                UPDATE "{s}".blocks k SET rho = k.rho + rhos[i], delta = k.delta + deltas[i],
                    mark = "{s}".block_mark(k.block, k.rho + rhos[i], k.delta + deltas[i])
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
                LEFT JOIN "{s}".blocks k ON k.stream = name AND k.block = b.block
                WHERE coalesce(k.rho, 0) > CASE b.block WHEN 'total' THEN total_room_rho ELSE room_rho END
                OR coalesce(k.delta, 0) > CASE b.block WHEN 'total' THEN total_room_delta ELSE room_delta END
                ORDER BY b.place LIMIT 1;
                IF FOUND THEN
                    verdict := 'refused';
                ELSE
                    -- Somebody with a record in every window; nobody is refused for having no budget left.
                    IF digest IS NOT NULL AND 'user' <> ALL (names) AND room_rho >= 0 AND room_delta >= 0 AND NOT EXISTS (
                        SELECT FROM "{s}".blocks k WHERE k.stream = name AND k.block = 'user'
                        AND (k.rho > room_rho OR k.delta > room_delta)
                    ) THEN
                        names := names || 'user'::text;
                    END IF;
                    INSERT INTO "{s}".blocks AS k
                    SELECT name, b.block, rhos[i], deltas[i], "{s}".block_mark(b.block, rhos[i], deltas[i])
                    FROM unnest(names) AS b (block)
                    ON CONFLICT (stream, block) DO UPDATE
                    SET rho = k.rho + excluded.rho, delta = k.delta + excluded.delta,
                        mark = "{s}".block_mark(k.block, k.rho + excluded.rho, k.delta + excluded.delta)
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
                known.mark := "{s}".window_mark(known);
                INSERT INTO "{s}".windows SELECT known.*;
                head.digest := "{s}".turn(head.digest, marked, known.mark);
                SELECT b.marks, b.rho, b.delta INTO marked, spent_rho, spent_delta
                FROM "{s}".read_blocks(name, touched) b;
                head.digest := "{s}".turn(head.digest, 0, marked);
                head.users := coalesce(digest, head.users);
                head.seq := head.seq + 1;
                head.chain := "{s}".append(
                    name, head.seq, head.chain, 'charge', opens[i], closes[i], rhos[i], deltas[i],
                    known.blocks, coalesce(digest, ''));
            END IF;
        END IF;
        IF spent_rho IS NULL THEN
            SELECT b.rho, b.delta INTO spent_rho, spent_delta FROM "{s}".read_blocks(name, visible) b;
        END IF;
        last_seq := head.seq;
        last_chain := head.chain;
        RETURN NEXT;
    END LOOP;
    IF head.seq > before THEN
        PERFORM "{s}".save(head);
    END IF;
END
$$;
CREATE FUNCTION {s}.charge_streams(names text[], seen_seqs bigint[], seen_chains bytea[], token bytea, digests text[], acked_counts integer[], acked_opens bigint[], acked_closes bigint[], counts integer[], opens bigint[], closes bigint[], rhos bigint[], deltas bigint[], block_lists text[]) RETURNS TABLE(verdict text, draw integer, charged_rho bigint, charged_delta bigint, spent_rho bigint, spent_delta bigint, refusing text, refusing_rho bigint, refusing_delta bigint, last_seq bigint, last_chain bytea)
    LANGUAGE plpgsql
    AS $$
DECLARE
    each record;
BEGIN
    PERFORM "{s}".lock_streams(names);
    FOR each IN
        SELECT u.*, sum(u.n) OVER (ORDER BY u.place) AS last, sum(u.acked) OVER (ORDER BY u.place) AS last_acked
        FROM unnest(names, seen_seqs, seen_chains, digests, acked_counts, counts)
        WITH ORDINALITY AS u (name, seq, chain, digest, acked, n, place) ORDER BY u.place
    LOOP
        RETURN QUERY SELECT * FROM "{s}".charge(
            each.name, each.seq, each.chain, token,
            acked_opens[each.last_acked - each.acked + 1 : each.last_acked],
            acked_closes[each.last_acked - each.acked + 1 : each.last_acked],
            opens[each.last - each.n + 1 : each.last], closes[each.last - each.n + 1 : each.last],
            rhos[each.last - each.n + 1 : each.last], deltas[each.last - each.n + 1 : each.last],
            block_lists[each.last - each.n + 1 : each.last], decode(nullif(each.digest, ''), 'hex'));
    END LOOP;
END
$$;
CREATE FUNCTION {s}.create_stream(name text, caps bigint[], salt bytea, origin bytea, no_users bytea, about bytea) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    head "{s}".streams%ROWTYPE;
BEGIN
    INSERT INTO "{s}".streams VALUES (
        name, false, caps[1], caps[2], caps[3], caps[4], 0, salt, 0, origin, 0, no_users, 0)
    RETURNING * INTO head;
    head.chain := "{s}".append(name, 0, origin, 'terms', 0, 0, 0, 0, '', about);
    PERFORM "{s}".save(head);
END
$$;
CREATE TABLE {s}.streams (
    stream text NOT NULL COLLATE pg_catalog."C",
    retired boolean NOT NULL,
    capacity_rho bigint NOT NULL,
    capacity_delta bigint NOT NULL,
    total_rho bigint,
    total_delta bigint,
    terms_seq bigint NOT NULL,
    salt bytea NOT NULL,
    seq bigint NOT NULL,
    chain bytea NOT NULL,
    digest bigint NOT NULL,
    users bytea NOT NULL,
    mark bigint NOT NULL
)
WITH (fillfactor='10');
CREATE FUNCTION {s}.head_mark(s {s}.streams) RETURNS bigint
    LANGUAGE sql
    AS $$
    SELECT "{s}".mark(concat_ws(
        '|', 'h', s.retired, s.capacity_rho, s.capacity_delta, coalesce(s.total_rho, -1), coalesce(s.total_delta, -1),
        s.terms_seq, encode(s.salt, 'hex'), s.seq, encode(s.chain, 'hex'), s.digest, encode(s.users, 'hex')))
$$;
CREATE TABLE {s}.leases (
    name text NOT NULL COLLATE pg_catalog."C",
    holder text NOT NULL,
    backend integer NOT NULL,
    expires timestamp with time zone NOT NULL
)
WITH (fillfactor='10');
CREATE FUNCTION {s}.is_held(lease {s}.leases) RETURNS boolean
    LANGUAGE sql
    AS $$
    SELECT lease.expires > clock_timestamp()
    AND EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = lease.backend)
$$;
CREATE FUNCTION {s}.keep_setting(name text, seen_seq bigint, seen_chain bytea, wanted text, proposed text, OUT kept text, OUT last_seq bigint, OUT last_chain bytea) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    head "{s}".streams%ROWTYPE;
BEGIN
    -- Parts of one stream ask one after the other.
    PERFORM pg_advisory_xact_lock(hashtextextended('fcstream settings ' || split_part(name, '/', 1), 0));
    head := "{s}".lock_stream(name, seen_seq, seen_chain);
    SELECT s.value INTO kept FROM "{s}".settings s WHERE s.stream = name AND s.key = wanted;
    IF NOT FOUND THEN
        SELECT s.value INTO kept FROM "{s}".settings s JOIN "{s}".streams t ON t.stream = s.stream
        WHERE split_part(s.stream, '/', 1) = split_part(name, '/', 1) AND NOT t.retired AND s.key = wanted
        ORDER BY s.stream LIMIT 1;
        kept := coalesce(kept, proposed);
        INSERT INTO "{s}".settings VALUES (name, wanted, kept, "{s}".mark('s|' || wanted || '|' || kept));
        head.digest := "{s}".turn(head.digest, 0, "{s}".mark('s|' || wanted || '|' || kept));
        head.seq := head.seq + 1;
        head.chain := "{s}".append(
            name, head.seq, head.chain, 'setting', 0, 0, 0, 0, wanted, convert_to(kept, 'UTF8'));
        PERFORM "{s}".save(head);
    END IF;
    last_seq := head.seq;
    last_chain := head.chain;
END
$$;
CREATE FUNCTION {s}.keep_settings(names text[], seen_seqs bigint[], seen_chains bytea[], wanted text[], proposed text[]) RETURNS TABLE(kept text, last_seq bigint, last_chain bytea)
    LANGUAGE plpgsql
    AS $$
DECLARE
    each record;
BEGIN
    -- In the order of `keep_setting`: first the parts of a stream, then their rows.
    PERFORM pg_advisory_xact_lock(hashtextextended('fcstream settings ' || r.root, 0))
    FROM (SELECT DISTINCT split_part(n.name, '/', 1) AS root FROM unnest(names) AS n (name) ORDER BY 1) r;
    PERFORM "{s}".lock_streams(names);
    FOR each IN
        SELECT u.* FROM unnest(names, seen_seqs, seen_chains, wanted, proposed)
        WITH ORDINALITY AS u (name, seq, chain, wanted, proposed, place) ORDER BY u.place
    LOOP
        RETURN QUERY SELECT * FROM "{s}".keep_setting(
            each.name, each.seq, each.chain, each.wanted, each.proposed);
    END LOOP;
END
$$;
CREATE FUNCTION {s}.lock_stream(name text, seen_seq bigint, seen_chain bytea) RETURNS {s}.streams
    LANGUAGE plpgsql
    AS $$
DECLARE
    head "{s}".streams%ROWTYPE;
    claim text := current_setting('fcstream.lease', true);  -- the holder's token, a space, the lease's name
BEGIN
    -- Durable when it returns, whatever a session or a connection pooler in between says.
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- The row seen is looked up before the lock is waited for: rows of a journal never change.
    SELECT * INTO head FROM "{s}".streams s WHERE s.stream = name AND EXISTS (
        SELECT FROM "{s}".journal j WHERE j.stream = name AND j.seq = seen_seq AND j.chain = seen_chain
    ) FOR UPDATE;
    IF NOT FOUND OR head.seq < seen_seq OR head.retired THEN
        IF EXISTS (
            SELECT FROM "{s}".streams s JOIN "{s}".journal j ON j.stream = s.stream AND j.seq = seen_seq
            WHERE s.retired AND j.chain = seen_chain
        ) THEN
            RAISE EXCEPTION 'the stream was retired' USING ERRCODE = 'ZF005', HINT = name;
        END IF;
        RAISE EXCEPTION 'a journal row is gone' USING ERRCODE = 'ZF001', HINT = name, DETAIL = seen_seq::text;
    END IF;
    IF head.terms_seq > seen_seq THEN
        RAISE EXCEPTION 'the caps were lowered' USING ERRCODE = 'ZF007', HINT = name;
    END IF;
    IF head.mark <> "{s}".head_mark(head) THEN
        RAISE EXCEPTION 'the head disagrees with the mark beside it' USING ERRCODE = 'ZF002', HINT = name;
    END IF;
    IF claim <> '' THEN
        -- Held until this transaction ends: nobody takes the lease in between. Renewals are not kept waiting.
        PERFORM FROM "{s}".leases l
        WHERE l.name = substr(claim, strpos(claim, ' ') + 1) AND l.holder = split_part(claim, ' ', 1) FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'another process holds the lease' USING ERRCODE = 'ZF006';
        END IF;
    END IF;
    RETURN head;
END
$$;
CREATE FUNCTION {s}.lock_streams(names text[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    IF cardinality(names) > 1 THEN
        PERFORM FROM "{s}".streams s WHERE s.stream = ANY (names) ORDER BY s.stream FOR UPDATE;
    END IF;
END
$$;
CREATE FUNCTION {s}.mark(line text) RETURNS bigint
    LANGUAGE sql
    AS $$
    SELECT ('x' || left(encode(sha256(convert_to(line, 'UTF8')), 'hex'), 15))::bit(60)::bigint
$$;
CREATE FUNCTION {s}.note_acknowledged(head {s}.streams, opens bigint[], closes bigint[]) RETURNS {s}.streams
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    known "{s}".windows%ROWTYPE;
    marked bigint;
BEGIN
    FOR i IN 1 .. cardinality(opens) LOOP
        -- By the primary key alone: the index of unacknowledged windows would be read from its start.
        SELECT * INTO known FROM "{s}".windows w
        WHERE w.stream = head.stream AND w.open_ms = opens[i] AND w.close_ms = closes[i];
        IF known.mark <> "{s}".window_mark(known) THEN
            RAISE EXCEPTION 'window % disagrees with the mark beside it', opens[i] USING ERRCODE = 'ZF002', HINT = head.stream;
        END IF;
        IF known.state = 'sealed' THEN
            known.state := 'acknowledged';
            marked := "{s}".window_mark(known);
            head.digest := "{s}".turn(head.digest, known.mark, marked);
            UPDATE "{s}".windows w SET state = 'acknowledged', mark = marked
            WHERE w.stream = head.stream AND w.open_ms = opens[i] AND w.close_ms = closes[i];
            head.seq := head.seq + 1;
            head.chain := "{s}".append(
                head.stream, head.seq, head.chain, 'acknowledge', opens[i], closes[i], 0, 0, '', '');
        END IF;
    END LOOP;
    RETURN head;
END
$$;
CREATE FUNCTION {s}.read_blocks(name text, wanted text[], OUT marks bigint, OUT rho bigint, OUT delta bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    each text;
    known "{s}".blocks%ROWTYPE;
BEGIN
    marks := 0;
    rho := 0;
    delta := 0;
    FOREACH each IN ARRAY wanted LOOP
        SELECT * INTO known FROM "{s}".blocks k WHERE k.stream = name AND k.block = each;
        CONTINUE WHEN NOT FOUND;
        IF known.mark <> "{s}".block_mark(known.block, known.rho, known.delta) THEN
            RAISE EXCEPTION 'block % disagrees with the mark beside it', each USING ERRCODE = 'ZF002', HINT = name;
        END IF;
        marks := (marks + known.mark) & 1152921504606846975;
        IF each <> 'total' THEN
            rho := greatest(rho, known.rho);
            delta := greatest(delta, known.delta);
        END IF;
    END LOOP;
END
$$;
CREATE FUNCTION {s}.renew_lease(wanted text, claimant text, seconds double precision) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE "{s}".leases l
    SET backend = pg_backend_pid(), expires = clock_timestamp() + make_interval(secs => seconds)
    WHERE l.name = wanted AND l.holder = claimant;
    RETURN FOUND;
END
$$;
CREATE FUNCTION {s}.retire(name text, seen_seq bigint, seen_chain bytea, later text, about bytea) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    head "{s}".streams%ROWTYPE := "{s}".lock_stream(name, seen_seq, seen_chain);
BEGIN
    head.seq := head.seq + 1;
    head.chain := "{s}".append(name, head.seq, head.chain, 'retire', 0, 0, 0, 0, '', about);
    head.retired := true;
    PERFORM "{s}".save(head);
    UPDATE "{s}".streams s SET stream = later WHERE s.stream = name;
    UPDATE "{s}".journal s SET stream = later WHERE s.stream = name;
    UPDATE "{s}".windows s SET stream = later WHERE s.stream = name;
    UPDATE "{s}".blocks s SET stream = later WHERE s.stream = name;
    UPDATE "{s}".users s SET stream = later WHERE s.stream = name;
    UPDATE "{s}".settings s SET stream = later WHERE s.stream = name;
END
$$;
CREATE FUNCTION {s}.save(head {s}.streams) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE "{s}".streams s
    SET seq = head.seq, chain = head.chain, digest = head.digest, users = head.users, terms_seq = head.terms_seq,
        capacity_rho = head.capacity_rho, capacity_delta = head.capacity_delta, total_rho = head.total_rho,
        total_delta = head.total_delta, retired = head.retired, mark = "{s}".head_mark(head)
    WHERE s.stream = head.stream;
END
$$;
CREATE FUNCTION {s}.seal(name text, seen_seq bigint, seen_chain bytea, token bytea, opens bigint[], closes bigint[], rhos bigint[], deltas bigint[], bodies bytea[], digests text[], OUT fresh integer, OUT refunded integer, OUT last_seq bigint, OUT last_chain bytea) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    head "{s}".streams%ROWTYPE := "{s}".lock_stream(name, seen_seq, seen_chain);
    known "{s}".windows%ROWTYPE;
    is_known boolean;
    old bigint;
    marked bigint;
    names text[];
    refund_rho bigint;
    refund_delta bigint;
    users_digest text;
    paid integer;
BEGIN
    fresh := 0;
    refunded := 0;
    FOR i IN 1 .. cardinality(opens) LOOP
        SELECT * INTO known FROM "{s}".windows w
        WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
        is_known := FOUND;
        IF is_known AND known.mark <> "{s}".window_mark(known) THEN
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
        users_digest := digests[i];
        IF known.draws > 1 OR (users_digest <> '' AND (opens[i], closes[i]) <> (
            SELECT j.open_ms, j.close_ms FROM "{s}".journal j
            WHERE j.stream = name AND j.kind = 'charge' ORDER BY j.seq DESC LIMIT 1
        )) THEN
            refund_rho := 0;
            refund_delta := 0;
            users_digest := '';
        END IF;
        IF refund_rho <> 0 OR refund_delta <> 0 THEN
            names := string_to_array(known.blocks, ',');
            SELECT b.marks INTO marked FROM "{s}".read_blocks(name, names) b;
            UPDATE "{s}".blocks k SET rho = k.rho - refund_rho, delta = k.delta - refund_delta,
                mark = "{s}".block_mark(k.block, k.rho - refund_rho, k.delta - refund_delta)
            WHERE k.stream = name AND k.block = ANY (names) AND k.rho >= refund_rho AND k.delta >= refund_delta;
            GET DIAGNOSTICS paid = ROW_COUNT;
            IF paid <> cardinality(names) THEN
                RAISE EXCEPTION 'a block has spent less than is refunded' USING ERRCODE = 'ZF002', HINT = name;
            END IF;
            head.digest := "{s}".turn(head.digest, marked, 0);
            SELECT b.marks INTO marked FROM "{s}".read_blocks(name, names) b;
            head.digest := "{s}".turn(head.digest, 0, marked);
            IF users_digest <> '' THEN
                head.users := decode(users_digest, 'hex');
            END IF;
            refunded := refunded + 1;
        END IF;
        fresh := fresh + 1;
        head.seq := head.seq + 1;
        head.chain := "{s}".append(
            name, head.seq, head.chain, 'seal', opens[i], closes[i], refund_rho, refund_delta,
            CASE WHEN refund_rho <> 0 OR refund_delta <> 0 THEN users_digest ELSE '' END, bodies[i]);
        old := known.mark;
        known.state := 'sealed';
        known.sealed_seq := head.seq;
        known.rho := known.rho - refund_rho;
        known.delta := known.delta - refund_delta;
        known.attempt := token || int4send(i);
        known.mark := "{s}".window_mark(known);
        head.digest := "{s}".turn(head.digest, old, known.mark);
        IF is_known THEN
            UPDATE "{s}".windows w
            SET state = known.state, sealed_seq = known.sealed_seq, rho = known.rho, delta = known.delta,
                attempt = known.attempt, mark = known.mark
            WHERE w.stream = name AND w.open_ms = opens[i] AND w.close_ms = closes[i];
        ELSE
            INSERT INTO "{s}".windows SELECT known.*;
        END IF;
    END LOOP;
    IF fresh > 0 THEN
        PERFORM "{s}".save(head);
    END IF;
    last_seq := head.seq;
    last_chain := head.chain;
END
$$;
CREATE FUNCTION {s}.seal_streams(names text[], seen_seqs bigint[], seen_chains bytea[], token bytea, counts integer[], opens bigint[], closes bigint[], rhos bigint[], deltas bigint[], bodies bytea[], digests text[]) RETURNS TABLE(refunded integer, last_seq bigint, last_chain bytea)
    LANGUAGE plpgsql
    AS $$
DECLARE
    each record;
BEGIN
    PERFORM "{s}".lock_streams(names);
    FOR each IN
        SELECT u.*, sum(u.n) OVER (ORDER BY u.place) AS last
        FROM unnest(names, seen_seqs, seen_chains, counts) WITH ORDINALITY AS u (name, seq, chain, n, place)
        ORDER BY u.place
    LOOP
        RETURN QUERY SELECT s.refunded, s.last_seq, s.last_chain FROM "{s}".seal(
            each.name, each.seq, each.chain, token,
            opens[each.last - each.n + 1 : each.last], closes[each.last - each.n + 1 : each.last],
            rhos[each.last - each.n + 1 : each.last], deltas[each.last - each.n + 1 : each.last],
            bodies[each.last - each.n + 1 : each.last], digests[each.last - each.n + 1 : each.last]) s;
    END LOOP;
END
$$;
CREATE FUNCTION {s}.set_terms(name text, seen_seq bigint, seen_chain bytea, caps bigint[], about bytea) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    head "{s}".streams%ROWTYPE := "{s}".lock_stream(name, seen_seq, seen_chain);
BEGIN
    head.seq := head.seq + 1;
    head.chain := "{s}".append(name, head.seq, head.chain, 'terms', 0, 0, 0, 0, '', about);
    head.terms_seq := head.seq;
    head.capacity_rho := caps[1];
    head.capacity_delta := caps[2];
    head.total_rho := caps[3];
    head.total_delta := caps[4];
    PERFORM "{s}".save(head);
END
$$;
CREATE FUNCTION {s}.take_lease(wanted text, claimant text, seconds double precision) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM "{s}".leases l WHERE l.name = wanted AND "{s}".is_held(l)) THEN
        RETURN false;  -- asked often, so without a lock
    END IF;
    INSERT INTO "{s}".leases VALUES (wanted, claimant, 0, '-infinity') ON CONFLICT DO NOTHING;
    -- Not while a transaction of the former holder is under way: see lock_stream.
    PERFORM FROM "{s}".leases l WHERE l.name = wanted FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE "{s}".leases l
    SET holder = claimant, backend = pg_backend_pid(), expires = clock_timestamp() + make_interval(secs => seconds)
    WHERE l.name = wanted AND NOT "{s}".is_held(l);
    RETURN FOUND;
END
$$;
CREATE FUNCTION {s}.turn(digest bigint, old bigint, new bigint) RETURNS bigint
    LANGUAGE sql
    AS $$
    SELECT (digest - old + new) & 1152921504606846975
$$;
CREATE TABLE {s}.windows (
    stream text NOT NULL COLLATE pg_catalog."C",
    open_ms bigint NOT NULL,
    close_ms bigint NOT NULL,
    state text NOT NULL,
    draws integer NOT NULL,
    rho bigint NOT NULL,
    delta bigint NOT NULL,
    blocks text NOT NULL,
    sealed_seq bigint,
    attempt bytea,
    mark bigint NOT NULL
);
CREATE FUNCTION {s}.window_mark(w {s}.windows) RETURNS bigint
    LANGUAGE sql
    AS $$
    SELECT "{s}".mark(
        'w|' || w.open_ms || '|' || w.close_ms || '|' || w.state || '|' || w.draws || '|' || w.rho || '|' || w.delta
        || '|' || w.blocks || '|' || coalesce(w.sealed_seq::text, 'None'))
$$;
CREATE TABLE {s}.blocks (
    stream text NOT NULL COLLATE pg_catalog."C",
    block text NOT NULL COLLATE pg_catalog."C",
    rho bigint NOT NULL,
    delta bigint NOT NULL,
    mark bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE {s}.journal (
    stream text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    kind text NOT NULL,
    open_ms bigint NOT NULL,
    close_ms bigint NOT NULL,
    rho bigint NOT NULL,
    delta bigint NOT NULL,
    blocks text NOT NULL,
    body bytea NOT NULL,
    chain bytea NOT NULL
);
CREATE TABLE {s}.meta (
    key text NOT NULL,
    value text NOT NULL
);
CREATE TABLE {s}.settings (
    stream text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL,
    mark bigint NOT NULL
);
CREATE TABLE {s}.users (
    stream text NOT NULL COLLATE pg_catalog."C",
    bucket integer NOT NULL,
    body bytea NOT NULL,
    mark bytea NOT NULL
);
ALTER TABLE ONLY {s}.users ALTER COLUMN body SET STORAGE EXTERNAL;
INSERT INTO {s}.blocks VALUES ('events', '0', 1000000000, 1000000, 418087363075605080);
INSERT INTO {s}.blocks VALUES ('events', '5000', 2000000000, 2000000, 120285607398529539);
INSERT INTO {s}.blocks VALUES ('events', '10000', 2000000000, 2000000, 301970706687238456);
INSERT INTO {s}.blocks VALUES ('events', '15000', 2000000000, 2000000, 810384219654620649);
INSERT INTO {s}.blocks VALUES ('events', '20000', 2000000000, 2000000, 1125050620484209766);
INSERT INTO {s}.blocks VALUES ('events', '25000', 1000000000, 1000000, 740590720665529076);
INSERT INTO {s}.blocks VALUES ('events', 'total', 5000000000, 5000000, 987621582270952486);
INSERT INTO {s}.blocks VALUES ('streams', 'stream', 3000000000, 1200000, 971571394599982165);
INSERT INTO {s}.blocks VALUES ('users', 'user', 3000000000, 3000000, 337586168191225883);
INSERT INTO {s}.blocks VALUES ('keyss/a', '0', 1000000000, 1000000, 418087363075605080);
INSERT INTO {s}.blocks VALUES ('keyss/b', '0', 1000000000, 1000000, 418087363075605080);
INSERT INTO {s}.blocks VALUES ('keyss/a', '10000', 1000000000, 1000000, 193259810428063389);
INSERT INTO {s}.blocks VALUES ('keyss/b', '10000', 1000000000, 1000000, 193259810428063389);
INSERT INTO {s}.blocks VALUES ('keyss/a', '20000', 1000000000, 1000000, 389200437960232841);
INSERT INTO {s}.blocks VALUES ('keyss/b', '20000', 1000000000, 1000000, 389200437960232841);
INSERT INTO {s}.journal VALUES ('events', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b343030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a342e302c22746f74616c5f64656c7461223a31652d30362c22746f74616c5f72686f223a33302e307d7d2c2273706563696669636174696f6e223a7b226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a3330307d2c2273747265616d223a7b226e616d65223a226576656e7473227d2c2277696e646f77223a7b226c656e677468223a22313073222c22736c696465223a223573222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2236646262386566623461323962363234366262623932626439323633343534333135353539326437626366373965333232343938396661393636343132376262222c2273747265616d223a226576656e7473222c22746f74616c223a5b33303030303030303030302c313030303030303030305d2c22756e6974223a226576656e74227d', '\x6c7741e5df2dfba2ac6b1903850be32b295a74f301299908715c7665f9a15efa');
INSERT INTO {s}.journal VALUES ('events', 1, 'setting', 0, 0, 0, 0, 'first window', '\x30', '\x5489ba31010e8b1033581d38552e0fc9416a4695429aecf4dc6bfc6b6d86cfaf');
INSERT INTO {s}.journal VALUES ('events', 2, 'charge', 0, 10000, 1000000000, 1000000, '0,5000,total', '\x', '\x81f17f7ce71d858264738e8fcf5c395d845a55ea3bc8dc84999e05639045ada9');
INSERT INTO {s}.journal VALUES ('events', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3435373836323237353434393130322c34392e3030363039353830383338333233365d2c227369676d61223a5b302e303036353032343239363737393837333532362c302e3031333330393531333435373533323835325d2c22636f756e74223a3139362c22636f72655f636f756e74223a3136372c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e313638333637333436393338373735357d2c22696e74657276616c223a5b5b32302e34343531313735313332383032352c32302e3437303630373033373631373935365d2c5b34382e3938303030393136323030363437352c34392e30333231383234353437365d5d7d', '\xd72bd3cb6a0787c52b81b43fd849b60dfc6678540a84a8e407e763342e509038');
INSERT INTO {s}.journal VALUES ('events', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\x2405441d460df2d286c2e7707226c47d0d09376c2e3a05363ce4d89783abaa6d');
INSERT INTO {s}.journal VALUES ('events', 5, 'charge', 5000, 15000, 1000000000, 1000000, '5000,10000,total', '\x', '\x90325c85e188abb233810dcc7d4925ed1b3b7fc1daac8054f23b7c0b696c7146');
INSERT INTO {s}.journal VALUES ('events', 6, 'seal', 5000, 15000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a353030302c2277696e646f775f636c6f73655f6d73223a31353030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3438363232353830363435313631342c34382e3933313631323930333232353830355d2c227369676d61223a5b302e3030373936363731373436383538313238372c302e30313538343034363339373337313939385d2c22636f756e74223a3230352c22636f72655f636f756e74223a3135352c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e32343339303234333930323433393032347d2c22696e74657276616c223a5b5b32302e3437303631313034303231333139362c32302e3530313834303537323639303033325d2c5b34382e3930303536353539333833373331342c34382e3936323636303231323631343239365d5d7d', '\xdfcb9800c2645025871908cedffa42324a5df790631d00a1c7be884d0532b30c');
INSERT INTO {s}.journal VALUES ('events', 7, 'charge', 10000, 20000, 1000000000, 1000000, '10000,15000,total', '\x', '\xf6292bf937449d62dfa4f4f3925e652b03c1e0305d8adba8c116df67809e1aa3');
INSERT INTO {s}.journal VALUES ('events', 8, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e343531313337352c34392e3031333132355d2c227369676d61223a5b302e3031333138383430313732303132343736342c302e3032363333383536333432393333313538335d2c22636f756e74223a3230372c22636f72655f636f756e74223a3136302c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e32353132303737323934363835393930347d2c22696e74657276616c223a5b5b32302e3432353238383233323632383535372c32302e3437363938363736373337313434375d2c5b34382e39363135303134313536373835312c34392e30363437343835383433323134395d5d7d', '\x37617639f8e7e84dae895a7ff2fe47152ae7a8006454d4dfab457d2bcbd940af');
INSERT INTO {s}.journal VALUES ('events', 9, 'acknowledge', 5000, 15000, 0, 0, '', '\x', '\x9cb04a87137e279bc7c553f6f51dfff59395fd7d0e09b106719c7519575a6840');
INSERT INTO {s}.journal VALUES ('events', 10, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\xc880f540de435a441393aa9d01c8af01e1df4157a800bc5501c61acb2b100987');
INSERT INTO {s}.journal VALUES ('events', 11, 'charge', 15000, 25000, 1000000000, 1000000, '15000,20000,total', '\x', '\xf9aea5e904915a94b459c61f755ed9110a8c4b60a0dce913e54fe48805dcf3ce');
INSERT INTO {s}.journal VALUES ('events', 12, 'seal', 15000, 25000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a31353030302c2277696e646f775f636c6f73655f6d73223a32353030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3439393839343430393933373838372c34382e3934303337323637303830373435365d2c227369676d61223a5b302e3031313834383531383336303530383337392c302e3032333639303439373837323030323936345d2c22636f756e74223a3139392c22636f72655f636f756e74223a3136312c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e32303130303530323531323536323831357d2c22696e74657276616c223a5b5b32302e34373636373133313339353132392c32302e3532333131373530353932343438355d2c5b34382e38393339333932393439373833332c34382e39383638303630343636333635385d5d7d', '\xa3c1ee8b3f49221d50459d1f7bb9dc21c4f92caf045c5973d0123ff0b644f5d3');
INSERT INTO {s}.journal VALUES ('events', 13, 'charge', 20000, 30000, 1000000000, 1000000, '20000,25000,total', '\x', '\xd4ceb3660c8481f3a861befcd68a4ff5a924acbc38be6d2315de52be11efb0c4');
INSERT INTO {s}.journal VALUES ('events', 14, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3533333332373136303439333832362c34382e39313534363931333538303234375d2c227369676d61223a5b302e30303731313335303636363435313630362c302e3031343235323034353737373130343533375d2c22636f756e74223a3230312c22636f72655f636f756e74223a3136322c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e31393430323938353037343632363836367d2c22696e74657276616c223a5b5b32302e3531393338343638373433313337362c32302e3534373236393633333535363237365d2c5b34382e38383735333531323630373933342c34382e39343334303331343535323535395d5d7d', '\x5d67ef2d4ff45de2aac26aae7b2369b54da3f29c611a781a2e20f6a68ed849e7');
INSERT INTO {s}.journal VALUES ('streams', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b343030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a342e307d7d2c2273706563696669636174696f6e223a7b226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c226d6574686f64223a22747261636b696e67222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a3135307d2c2273747265616d223a7b226e616d65223a2273747265616d73222c22756e6974223a2273747265616d227d2c2277696e646f77223a7b226c656e677468223a22313073222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2233383134636633323965633065653237376137303566656338383535333263636363353139393162303037363230396331613931646236613333666161383564222c2273747265616d223a2273747265616d73222c22746f74616c223a6e756c6c2c22756e6974223a2273747265616d227d', '\x21a8f4cba09e6ee04931f4296fca376747dc4d0bec425f1be2dd20bb6ee66fa2');
INSERT INTO {s}.journal VALUES ('streams', 1, 'setting', 0, 0, 0, 0, 'first window', '\x30', '\x453cb2757898d19d7405b8ad95a83113fb468cae7acebdbd67aea0f908373f8f');
INSERT INTO {s}.journal VALUES ('streams', 2, 'charge', 0, 10000, 1000000000, 1000000, 'stream', '\x', '\xc1d9c91a01d96e90c305786be4915fa47cd928f69d2c2bfdfac58fda2d9ee8b1');
INSERT INTO {s}.journal VALUES ('streams', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a2273747265616d73222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3437323039393530323438373536332c34392e30323634343737363131393430335d2c227369676d61223a5b302e3030343736393738373939323838383036392c302e30303935333831393032353730363839355d2c22636f756e74223a3230342c22636f72655f636f756e74223a3230312c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c22747261636b223a7b2263656e746572223a5b3437322c2d3438375d2c227369676d61223a342e3736393738373939323838383036392c227265616368223a3535312e3737373938353436333737352c226163726f7373223a3535312e3737373938353436333737352c227368617265223a6e756c6c2c226472696674223a66616c73657d2c227061727473223a7b227461696c5f7368617265223a302e3032393431313736343730353838323335337d2c22696e74657276616c223a5b5b32302e3436323735303731383032313530332c32302e3438313434383238363935333632325d2c5b34392e30303737353239303832393031372c34392e3034353134323631343039373838345d5d7d', '\xf9690610afa5c41899c522eebbf4a2c47fb75a6a0fc732dff5f6b28bf39801ec');
INSERT INTO {s}.journal VALUES ('streams', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\xf63cde7d3c9a70169366792839bed92e297afabc9875693e7da0d32a4e230c90');
INSERT INTO {s}.journal VALUES ('streams', 5, 'charge', 10000, 20000, 1000000000, 100000, 'stream', '\x', '\xf99f8d1352357adc362ab92908b901b362a238f119d571864794f07ef04cc128');
INSERT INTO {s}.journal VALUES ('streams', 6, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a2273747265616d73222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3435373339313533343339313533332c34382e39383335333433393135333433395d2c227369676d61223a5b302e3030333438393138373131333830373734322c302e3030363938303639363531363731333734395d2c22636f756e74223a3139382c22636f72655f636f756e74223a3138392c2272686f223a312e302c2264656c7461223a31652d31302c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a312e31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c22747261636b223a7b2263656e746572223a5b3435372c2d3530385d2c227369676d61223a332e3439303334383235383335363837342c227265616368223a3535312e3737373938353436333737352c226163726f7373223a3535312e3737373938353436333737352c227368617265223a302e393534353435343534353435343534362c226472696674223a66616c73657d2c227061727473223a7b227461696c5f7368617265223a302e3034353435343534353435343534353435367d2c22696e74657276616c223a5b5b32302e34353035353237323736343834372c32302e3436343233303334313133343539355d2c5b34382e39363938353232323633363136332c34382e39393732313635353637303731355d5d7d', '\xafa0b23833c444d60decb48bc1bcf35baddf9a4ec72e1d399bc39b47323bd273');
INSERT INTO {s}.journal VALUES ('streams', 7, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\xf15a4b0161ebf5353c8803f12180a1b8dd564b66f820222c46930e2d759caeae');
INSERT INTO {s}.journal VALUES ('streams', 8, 'charge', 20000, 30000, 1000000000, 100000, 'stream', '\x', '\xe025598126c6b7302c4903a9e34050868bd1fe36a1ddb81dc54519a99bd8c113');
INSERT INTO {s}.journal VALUES ('streams', 9, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a2273747265616d73222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3531333039303432353533313931342c34382e3933333131373032313237363539345d2c227369676d61223a5b302e30303334393735353235303639303239392c302e30303639373034313338393535393836365d2c22636f756e74223a3230312c22636f72655f636f756e74223a3138382c2272686f223a312e302c2264656c7461223a31652d31302c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a332e302c2264656c7461223a312e32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c22747261636b223a7b2263656e746572223a5b3531332c2d3533335d2c227369676d61223a332e34393735353235303639303239392c227265616368223a3535312e3737373938353436333737352c226163726f7373223a3535312e3737373938353436333737352c227368617265223a302e393534353435343534353435343534362c226472696674223a66616c73657d2c227061727473223a7b227461696c5f7368617265223a302e30363436373636313639313534323238387d2c22696e74657276616c223a5b5b32302e3530363233353232323631383338332c32302e3531393934353632383434353434355d2c5b34382e39313934353530313030343132322c34382e39343637373930333235313139375d5d7d', '\xbc7588d2179df193e15d9bf7a137fffa2a37c39b000367a2df9b2c2ff3ab0ede');
INSERT INTO {s}.journal VALUES ('users', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b383030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a382e307d7d2c2273706563696669636174696f6e223a7b22627564676574223a7b22736176696e6773223a226576656e227d2c226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a3130307d2c2273747265616d223a7b226e616d65223a227573657273222c227065725f75736572223a226d65616e222c22756e6974223a2275736572222c2275736572223a226964227d2c2277696e646f77223a7b22656e64223a22313937302d30312d30315430303a30313a30305a222c226c656e677468223a22313073222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2233373930373065623639333163356338653534316238633432643036646137653665383264346638393865643063623639373634646538643231666134396132222c2273747265616d223a227573657273222c22746f74616c223a6e756c6c2c22756e6974223a2275736572227d', '\x69cc6804978052906446f89ce5ee66e6acba672e7bee5770b5f6b63733e86e00');
INSERT INTO {s}.journal VALUES ('users', 1, 'setting', 0, 0, 0, 0, 'first window', '\x30', '\xcab804b298fa48ac978c2ed4e7bf0025f9465fbcef326fb39bb98bb7fa71ab13');
INSERT INTO {s}.journal VALUES ('users', 2, 'charge', 0, 10000, 1000000000, 1000000, 'user', '\x5475cc04142a9308aae3ff66acd588644b3d0c62aa3659ca4c604ba24d3959d2', '\x0b6714cc9dcf7c9af70993d0c0c6ff9cbca8436afaf66b1c62e05bce46349c89');
INSERT INTO {s}.journal VALUES ('users', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a227573657273222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3435393830353139343830353139352c34392e303137323938373031323938375d2c227369676d61223a5b302e3031313835353630323437353436313038352c302e3032333730393830313534393335373331365d2c22636f756e74223a3135362c22636f72655f636f756e74223a3135342c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a382e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e30343438373137393438373137393438377d2c2270617274696369706174696f6e223a2266756c6c222c22696e74657276616c223a5b5b32302e34333635363832313339353332392c32302e343833303432313735363537315d2c5b34382e39373038323734393032363139362c34392e30363337363939313233333534345d5d7d', '\x5482e98002df05b57dc059bf97d4ace5b30ecc074db52de26833b94e466c9589');
INSERT INTO {s}.journal VALUES ('users', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\x1274ff67c70baf3ce30e9fc28d57c277ed5d45abadee022cdc7eaf68276bbbdc');
INSERT INTO {s}.journal VALUES ('users', 5, 'charge', 10000, 20000, 1000000000, 1000000, 'user', '\x57fa06847e8f69cffaf5cf56ffa35693468ef86027ef58826b269dbcdce2eddb', '\xa09a42a7cfe3cac7dcf04290b96d17335db7c8a0720f9cdd26261d6716048f32');
INSERT INTO {s}.journal VALUES ('users', 6, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a227573657273222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3435313633333333333333333333342c34382e39373734313333333333333333335d2c227369676d61223a5b302e3030363934303932303438373035303232342c302e3031333833353533303037373432393830345d2c22636f756e74223a3135342c22636f72655f636f756e74223a3135302c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a382e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e30393039303930393039303930393039317d2c2270617274696369706174696f6e223a2266756c6c222c22696e74657276616c223a5b5b32302e3433383032393132393137383731362c32302e34363532333735333734383739355d2c5b34382e3935303239353639343338313536362c34392e3030343533303937323238353039365d5d7d', '\xf525e4a413b749fd183f36ec2727743be885bd141b11680ab8414bf9089db023');
INSERT INTO {s}.journal VALUES ('users', 7, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\x96f9bb0f52087e6e72d13d4284bae30f1ab15c26ce3a33949b009c2e2bfd0fc9');
INSERT INTO {s}.journal VALUES ('users', 8, 'charge', 20000, 30000, 1000000000, 1000000, 'user', '\x5b2816a353951d647697d4750a9472372685f79a193ac3880be6e8077b899d94', '\xc280f54bc33ec6324466954421af1dcd823e87f2340565f6aaadf8eff2dd4819');
INSERT INTO {s}.journal VALUES ('users', 9, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a227573657273222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e353131372c34382e39323138385d2c227369676d61223a5b302e30303938393730333630373734303739392c302e3031393739323736393137363234303934345d2c22636f756e74223a3134372c22636f72655f636f756e74223a3135302c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a382e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a332e302c2264656c7461223a33652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e3031333630353434323137363837303734387d2c2270617274696369706174696f6e223a2266756c6c222c22696e74657276616c223a5b5b32302e3439323330313830393238383238322c32302e35333130393831393037313137325d2c5b34382e38383330383631373234313435372c34382e39363036373338323735383534335d5d7d', '\x27514baba7be8f0b9f9f2b6f6d81b0347f28482601045d7b02ecccc4b9136d3b');
INSERT INTO {s}.journal VALUES ('keyss/a', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b343030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a342e307d7d2c2273706563696669636174696f6e223a7b226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a39307d2c2273747265616d223a7b226b6579223a2273697465222c226e616d65223a226b65797373227d2c2277696e646f77223a7b226c656e677468223a22313073222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2232373734306633333763326661356239333335386439396564376565306164313465363536393366663138333938353736663163323034323332366465353739222c2273747265616d223a226b657973732f61222c22746f74616c223a6e756c6c2c22756e6974223a226576656e74227d', '\x62076c70a53f4f64c300c636ceea1996d8f0d229c7a816251d49a64328f55ad4');
INSERT INTO {s}.journal VALUES ('keyss/b', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b343030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a342e307d7d2c2273706563696669636174696f6e223a7b226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a39307d2c2273747265616d223a7b226b6579223a2273697465222c226e616d65223a226b65797373227d2c2277696e646f77223a7b226c656e677468223a22313073222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2232373734306633333763326661356239333335386439396564376565306164313465363536393366663138333938353736663163323034323332366465353739222c2273747265616d223a226b657973732f62222c22746f74616c223a6e756c6c2c22756e6974223a226576656e74227d', '\x91492be2fd36450b2636919feaf1d4151b24c5494394d0956d551a13c6fbbbbb');
INSERT INTO {s}.journal VALUES ('keyss/a', 1, 'setting', 0, 0, 0, 0, 'first window of key a', '\x30', '\x10b67df1836ece2286ead8d2dd15a5a473c312bb6dde3ae5521c1b1fb8dd8a83');
INSERT INTO {s}.journal VALUES ('keyss/b', 1, 'setting', 0, 0, 0, 0, 'first window of key b', '\x30', '\x132692c7ee14c17af259877cc60e4511bfacfba30fe9c5a6fd1f49a70d80e969');
INSERT INTO {s}.journal VALUES ('keyss/a', 2, 'charge', 0, 10000, 1000000000, 1000000, '0', '\x', '\xfc8128859ba4a55ef77bda935ceeea07d3c2c04671d05b9205545d43bc8ad031');
INSERT INTO {s}.journal VALUES ('keyss/b', 2, 'charge', 0, 10000, 1000000000, 1000000, '0', '\x', '\x79cdbc51d8955ab154f31b7c2948e3caf0584460f65d403db1ac793b5170a7f5');
INSERT INTO {s}.journal VALUES ('keyss/a', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a226b657973732f61222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3438353436333931373532353737342c34382e39383735363730313033303932385d2c227369676d61223a5b302e3031383039343333383932303833343735372c302e303336333237383736363337343132345d2c22636f756e74223a3130362c22636f72655f636f756e74223a39372c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e30383439303536363033373733353834397d2c226b6579223a2261222c22696e74657276616c223a5b5b32302e3434393939393031333234303933372c32302e35323039323838323138313036315d2c5b34382e39313633363433373230393939352c34392e3035383736393634383531383630365d5d7d', '\x215a9c7ab88a19272ec98afff5b4a8a16d24f4a834654a0559bb4b88a645ab3e');
INSERT INTO {s}.journal VALUES ('keyss/b', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a226b657973732f62222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3435373838353431363636363636372c34392e30323535343136363636363636375d2c227369676d61223a5b302e303231363236363937313035383633312c302e30343331323434323837363436393139325d2c22636f756e74223a3130342c22636f72655f636f756e74223a39362c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e30373639323330373639323330373639337d2c226b6579223a2262222c22696e74657276616c223a5b5b32302e3431353439373039303333393137362c32302e3530303237333734323939343135375d2c5b34382e39343130313737383632383738372c34392e3131303036353534373034353436355d5d7d', '\x2efd4cd5ec0f16c6f84aa324a454e1afc3f9bc9bc650980cf092a42bf26bee36');
INSERT INTO {s}.journal VALUES ('keyss/a', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\x43248aa95eb87170ae5e9e100627dd7ca6a3cb82ad79b45b1d24c2b5a8d8c948');
INSERT INTO {s}.journal VALUES ('keyss/b', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\x5f39013e536a7be9788bfd1474b1232b286534191c774df034c6585fa70fa925');
INSERT INTO {s}.journal VALUES ('keyss/a', 5, 'charge', 10000, 20000, 1000000000, 1000000, '10000', '\x', '\x67a97ff82028a85f8e058f3e4d82eede84fdd8fb215a360884b0c0c410d9b169');
INSERT INTO {s}.journal VALUES ('keyss/b', 5, 'charge', 10000, 20000, 1000000000, 1000000, '10000', '\x', '\x1ea0efc221e1fa019815fa0c950033bc096e6c7335a91b8e71326dbbb460fc91');
INSERT INTO {s}.journal VALUES ('keyss/a', 6, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a226b657973732f61222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3435313734343839373935393138342c34392e30323739373935393138333637335d2c227369676d61223a5b302e3031383632303539393539393630383037372c302e30333738383133393637363133383931335d2c22636f756e74223a39392c22636f72655f636f756e74223a39382c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e30383038303830383038303830383038317d2c226b6579223a2261222c22696e74657276616c223a5b5b32302e34313532343835323237343339352c32302e3438383234313237333137343431375d2c5b34382e39353337333230353431383434312c34392e31303232323731323934383930365d5d7d', '\x5a5fb7cb49803c727cce27fa2e148acc2ed09d54c9efacc32328559eff9a999c');
INSERT INTO {s}.journal VALUES ('keyss/b', 6, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a226b657973732f62222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e34343135373839343733363834322c34382e3930373039343733363834323130355d2c227369676d61223a5b302e3032303632383735323830343934333138352c302e3034313031333936323131323035323438365d2c22636f756e74223a3130322c22636f72655f636f756e74223a39352c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e30363836323734353039383033393231367d2c226b6579223a2262222c22696e74657276616c223a5b5b32302e34303131343635393138373037332c32302e34383230313133303238363631315d2c5b34382e38323637303733373131303234382c34382e39383734383231303235383137335d5d7d', '\x8496307ca3e2ff5675628271f291c87b399a16df2c162fb1748101ccb861c451');
INSERT INTO {s}.journal VALUES ('keyss/a', 7, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\x88635019ab2b7d39ace4cbbff00735addca7d924d9c7337cb7d26821ed227bd9');
INSERT INTO {s}.journal VALUES ('keyss/b', 7, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\x0d463244419e06df8744e0f182f2577e2930c8ffff42b30aadf8c6e55541a811');
INSERT INTO {s}.journal VALUES ('keyss/a', 8, 'charge', 20000, 30000, 1000000000, 1000000, '20000', '\x', '\x6f3bbb0c666e36a73e3187c6a13fd084282d1ecbd47330d052a1dfd2586a816b');
INSERT INTO {s}.journal VALUES ('keyss/b', 8, 'charge', 20000, 30000, 1000000000, 1000000, '20000', '\x', '\x438e54b9b3232b2a9000fa226baac696caa90052c83cfd6d65beda01d5be7e8c');
INSERT INTO {s}.journal VALUES ('keyss/a', 9, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a226b657973732f61222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3530373334363533343635333436352c34392e30343335323437353234373532355d2c227369676d61223a5b302e3031333930343137393835323231323731382c302e3032383131303835393135333339303337325d2c22636f756e74223a3130302c22636f72655f636f756e74223a3130312c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e307d2c226b6579223a2261222c22696e74657276616c223a5b5b32302e34383030393433343231343331332c32302e353334353938373237313633385d2c5b34382e393838343237343638353334362c34392e303938363232303336343135395d5d7d', '\xa77c53773e44df9fa098bab24da4ebb785039b895869b1db4a2e6fc70a8e523d');
INSERT INTO {s}.journal VALUES ('keyss/b', 9, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a226b657973732f62222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e34383036373637363736373637372c34382e3831353633363336333633363336355d2c227369676d61223a5b302e3032353034383637323739363635353931322c302e3035303434383333363238373538393332345d2c22636f756e74223a3130302c22636f72655f636f756e74223a39392c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e30317d2c226b6579223a2262222c22696e74657276616c223a5b5b32302e3433313538313336383939353332352c32302e3532393737323136363335383231345d2c5b34382e37313637353736323435313236392c34382e39313435313531303237363030345d5d7d', '\x0040dd24a4f643c3b6e247c62c9f80850ca126da0da1157e1f2ea2600eebf26d');
INSERT INTO {s}.meta VALUES ('schema', '4');
INSERT INTO {s}.settings VALUES ('events', 'first window', '0', 1001911846894139791);
INSERT INTO {s}.settings VALUES ('streams', 'first window', '0', 1001911846894139791);
INSERT INTO {s}.settings VALUES ('users', 'first window', '0', 1001911846894139791);
INSERT INTO {s}.settings VALUES ('keyss/a', 'first window of key a', '0', 4491938252297086);
INSERT INTO {s}.settings VALUES ('keyss/b', 'first window of key b', '0', 1011016689007659313);
INSERT INTO {s}.streams VALUES ('events', false, 4000000000, 1000000000, 30000000000, 1000000000, 0, '\x7ff19888651843ca9f9018706b48c0b9c5b75d4c524de5e534dd8c3b2bd96720', 14, '\x5d67ef2d4ff45de2aac26aae7b2369b54da3f29c611a781a2e20f6a68ed849e7', 408094824920459249, '\x0000000000000000000000000000000000000000000000000000000000000000', 1069130219430626509);
INSERT INTO {s}.streams VALUES ('users', false, 8000000000, 1000000000, NULL, NULL, 0, '\x48d0e0ff09d3dd2f14f77d5361d393ac9011e820d7e9e8951c57f9b6997dcc62', 9, '\x27514baba7be8f0b9f9f2b6f6d81b0347f28482601045d7b02ecccc4b9136d3b', 647620462876454241, '\x5b2816a353951d647697d4750a9472372685f79a193ac3880be6e8077b899d94', 335349991713085628);
INSERT INTO {s}.streams VALUES ('streams', false, 4000000000, 1000000000, NULL, NULL, 0, '\x24275ca18a42a34ad759ea2ae5bb051267428707fd496bd9d535e378678f7707', 9, '\xbc7588d2179df193e15d9bf7a137fffa2a37c39b000367a2df9b2c2ff3ab0ede', 508598752223683551, '\x0000000000000000000000000000000000000000000000000000000000000000', 224816155058888724);
INSERT INTO {s}.streams VALUES ('keyss/a', false, 4000000000, 1000000000, NULL, NULL, 0, '\xb911b9ca9e4fc49a9642ce409a4454e97013f0767a02d8168018a6b71a8df46e', 9, '\xa77c53773e44df9fa098bab24da4ebb785039b895869b1db4a2e6fc70a8e523d', 1080667399142895424, '\x0000000000000000000000000000000000000000000000000000000000000000', 769178957228649723);
INSERT INTO {s}.streams VALUES ('keyss/b', false, 4000000000, 1000000000, NULL, NULL, 0, '\xbbcf270c78bc7718d3f111bda4806348ceedbf5387d545c1dd10573204e1cc4e', 9, '\x0040dd24a4f643c3b6e247c62c9f80850ca126da0da1157e1f2ea2600eebf26d', 934270645291410675, '\x0000000000000000000000000000000000000000000000000000000000000000', 931959107868232102);
INSERT INTO {s}.users VALUES ('users', 118, '\x01db4260e49fc1a4dbe5fb28d9255657005ed0b200000000c0c62d0000000000204e000000000000', '\x68cd73a2705f60d279189e5a844c68e875fb5a2512701f556d45152392ea8ff8');
INSERT INTO {s}.users VALUES ('users', 199, '\x031e1f06c68c896e870729a70aa11987005ed0b200000000c0c62d0000000000204e000000000000', '\x74fb3b86fc2a52d085311f1d842f356d7c4aa9228f60e2ac2bd7922f010e6724');
INSERT INTO {s}.users VALUES ('users', 239, '\x03bded004830652a14b0c9b13a9826ee005ed0b200000000c0c62d0000000000204e000000000000', '\xedd2e47e21c7d1d230dafbf2d3615606ae6f5fc2edee4491fed70bf63562710b');
INSERT INTO {s}.users VALUES ('users', 287, '\x047d6a95b94ee88ff63f32c493935040005ed0b200000000c0c62d0000000000204e000000000000', '\x1b60bb28cba978606b00f0d2e88f2e31b79ad90d64a51f83c132e65877e3b49a');
INSERT INTO {s}.users VALUES ('users', 327, '\x051ed313015870a27c63908fae4f1d4e005ed0b200000000c0c62d0000000000204e000000000000', '\x62f22589f8a4bae4a2243528260a262a62bedadf96275ca02d68ab4be3d1dfc4');
INSERT INTO {s}.users VALUES ('users', 355, '\x058ecf39931335333aca34565984a46b005ed0b200000000c0c62d0000000000204e000000000000', '\x9e79c705e58260843b0c3b5388a853aef0a0b333eb7cb8ec7d09a5d75b6541bd');
INSERT INTO {s}.users VALUES ('users', 412, '\x06716f3ab4820dc71186febcacab2ebe005ed0b200000000c0c62d0000000000204e000000000000', '\x394bd4f1fa10fcf8de4b158c65448702f3438dcf5e7d079ed11c8c14e609f940');
INSERT INTO {s}.users VALUES ('users', 428, '\x06b339d5044afd20487d084f6c891ccf005ed0b200000000c0c62d0000000000204e000000000000', '\xe4903517126370e7585078a873c440e44ea2db9334404343885946ce093bd64d');
INSERT INTO {s}.users VALUES ('users', 481, '\x0787405bb4c7f50187d2dcf79fda1ddd005ed0b200000000c0c62d0000000000204e000000000000', '\xb4ab3a25261b4c4b2de45efc6f15a74c45dca7237289a20b958f39a103b6a99f');
INSERT INTO {s}.users VALUES ('users', 504, '\x07e37ebf06a74b9324c38f4d5824cf10005ed0b200000000c0c62d0000000000204e000000000000', '\x603ee78db430d55dff0769a4e4691693387c903dd92e31ffe113107016173fef');
INSERT INTO {s}.users VALUES ('users', 523, '\x082ddf6350f6ef316cece8049e13fc8e005ed0b200000000c0c62d0000000000204e000000000000', '\x47507a40f31456205b8967f5e87496bb3b02c98d048ec57dd38684e8f6d008d3');
INSERT INTO {s}.users VALUES ('users', 750, '\x0bba914810821c470d69130be54bc10a005ed0b200000000c0c62d0000000000204e000000000000', '\x5cbe4d73b75e78fb1a5b71ab36c9f3392d169752a1dedd0e4ad1f878b1ccd355');
INSERT INTO {s}.users VALUES ('users', 1056, '\x1080687178ba90f78a6598cd237e1b17005ed0b200000000c0c62d0000000000204e000000000000', '\x4ac7ae94d4f73e4c03eab2621a5a5eeafbad58f3e5765d6cff2a7f38716b55a3');
INSERT INTO {s}.users VALUES ('users', 1307, '\x146d33a6b0ccdba9d20fe1e766c817d6005ed0b200000000c0c62d0000000000204e000000000000', '\xe8c3145ef505bf91cf4cdc1c84f65b988a8825fac3afe13f76e0be3a2255b8e8');
INSERT INTO {s}.users VALUES ('users', 1367, '\x155e071717df4d12af9b9f72cc54981d005ed0b200000000c0c62d0000000000204e000000000000', '\xe4827e9eb228d5e7fdc6386e87ea70270057cb538530f666d0c280fc04e35f7b');
INSERT INTO {s}.users VALUES ('users', 1519, '\x17bc5accc4b0e402d6fbcdbad0970dba005ed0b200000000c0c62d0000000000204e000000000000', '\x16ccf845a6a438a2e7e1acb47cbdabe57f67cd15afccd12b06d4d0bc7c631c24');
INSERT INTO {s}.users VALUES ('users', 1553, '\x1847da50c5d168f91619108ca6c218f6005ed0b200000000c0c62d0000000000204e000000000000', '\xd2e7e25ef958339288459c7fc7addc97ecb5f7639eda3da8fb4e5343c641cf45');
INSERT INTO {s}.users VALUES ('users', 1630, '\x197abad54c6b54bd5eff849d4d78cc1d005ed0b200000000c0c62d0000000000204e000000000000', '\x44db9c86911b6580265a8360e3152de50a92aea444a5d1f1cb9a2106919d76e1');
INSERT INTO {s}.users VALUES ('users', 1803, '\x1c2fab8351fb0f7a52412ef688e32ccd005ed0b200000000c0c62d0000000000204e000000000000', '\x9822a33d0ec022e76f774b5a0843dd3cad5e5f07db5ed202b6276ba832c2a385');
INSERT INTO {s}.users VALUES ('users', 1816, '\x1c61a7dd8bd15f3b9b3912833c989a55005ed0b200000000c0c62d0000000000204e000000000000', '\x075e1434ea12a4464f115b680d5c539b561398c9f512f1ecade1af00e8d629eb');
INSERT INTO {s}.users VALUES ('users', 1996, '\x1f337b2781a99f074d002d501e910dd8005ed0b200000000c0c62d0000000000204e000000000000', '\x2d9657dc195dd9469d542cc86553e43e659a45904cb19ff9ea8ee517b9788b3f');
INSERT INTO {s}.users VALUES ('users', 2269, '\x2375c9dc75089366033ff403cb8d5e57005ed0b200000000c0c62d0000000000204e000000000000', '\x404b81c6d180cc4e169da507cfe52c05879215692e7b3809f2bde9beb60d4101');
INSERT INTO {s}.users VALUES ('users', 2307, '\x240f35ed0abdbfeec196c754814bc322005ed0b200000000c0c62d0000000000204e000000000000', '\x1e8d02864d91aeb06e966dca10557c7bbab1b4b41f97ac330b6558865df1124a');
INSERT INTO {s}.users VALUES ('users', 2513, '\x27470e3f868e5091f9f2a52e5e08cfca005ed0b200000000c0c62d0000000000204e000000000000', '\x2b7a152cad8507b479a347cb2c5dc85c6da17932db5e285f4b6d9668c33c255d');
INSERT INTO {s}.users VALUES ('users', 2552, '\x27e0765e3516bd64b441a937d1fbbba5005ed0b200000000c0c62d0000000000204e000000000000', '\x3b30db3bc467951d80c84a20518b76318f41e27d152dfea81f537583f8d13efb');
INSERT INTO {s}.users VALUES ('users', 2789, '\x2b95ee56431423389e2c8ccc8eace51d005ed0b200000000c0c62d0000000000204e000000000000', '\x0151124114ec770ba3b35c1e16183ede324ca0c0480b9d73a078c8d17e48543b');
INSERT INTO {s}.users VALUES ('users', 2841, '\x2c674d613126aa26103c7dcb4c106040005ed0b200000000c0c62d0000000000204e000000000000', '\xc1198ee763b2b856cddb545c3bacfd643eca155d17c67c32698f97bf2ca5d9ea');
INSERT INTO {s}.users VALUES ('users', 2881, '\x2d04126b7663187549c32caeb392e72b005ed0b200000000c0c62d0000000000204e000000000000', '\xd287e1d5677216f6816abd21fa42db1bbfe701ef90328099c0ae5ea1f7137279');
INSERT INTO {s}.users VALUES ('users', 2905, '\x2d6752bbd74a2f9449291e793a4bdf21005ed0b200000000c0c62d0000000000204e000000000000', '\x7285fa6d7dc0bcf33ce589891e3a68895857b14883de416e034b007ea4f43df1');
INSERT INTO {s}.users VALUES ('users', 2950, '\x2e19ba8a3856373766ca826b7ac96109005ed0b200000000c0c62d0000000000204e000000000000', '\x6eddfcaa4ca5f519c0e6886e2b0ec7ff4e5e31615712a2f289a3d21c89b3a98c');
INSERT INTO {s}.users VALUES ('users', 3283, '\x334e5ba4305a9a7d842b064e8dd48fa5005ed0b200000000c0c62d0000000000204e000000000000', '\x483abe7df09456f842a558d9b4d6246deb84920c62aff3f11730de5433940480');
INSERT INTO {s}.users VALUES ('users', 3383, '\x34dd47cf624bc60a07de8a3847a95553005ed0b200000000c0c62d0000000000204e000000000000', '\xe67d7e1748056efd666d30bd2aa75f895145f368b3aa1175dd6ffd840871abff');
INSERT INTO {s}.users VALUES ('users', 3476, '\x365014f08db0e63cdf717b852f9a8b28005ed0b200000000c0c62d0000000000204e000000000000', '\x3deb37b41d9a647606744cfbb8e039c75aa42d45d594c297860a675219409b2b');
INSERT INTO {s}.users VALUES ('users', 3518, '\x36f99ea8d88d1517630c910dfc090c34005ed0b200000000c0c62d0000000000204e000000000000', '\x223087797f22cef8a8b6d70df707fd67a348b9ffb1d77ea9728e312697ba95c1');
INSERT INTO {s}.users VALUES ('users', 3747, '\x3a8cb89f6a75927c0d758badaec65779005ed0b200000000c0c62d0000000000204e000000000000', '\x7b348090e1c11d13cfe5afdaf2649992779487af9c60d43696774b6a6487559c');
INSERT INTO {s}.users VALUES ('users', 3825, '\x3bc52dad5414d814a5fff37eec8dbdc3005ed0b200000000c0c62d0000000000204e000000000000', '\x9ea9b59308902b1eb50bbae8fe6b2e71cc481d2e10fa8a23bedacc0e75d41ee8');
INSERT INTO {s}.users VALUES ('users', 4360, '\x4422884081d2ec4e2db5842c7fa59eb7005ed0b200000000c0c62d0000000000204e000000000000', '\x0d53fb9533a483f7bec9c825e8dbbda669510b2e60253aa18bdfdf3bd8f440fc');
INSERT INTO {s}.users VALUES ('users', 4417, '\x4506ef8c9f68b9030305ad6afb4ce054005ed0b200000000c0c62d0000000000204e000000000000', '\x2d2d38db2fc15ddad2b5c6678a7f6d68c281b32751b3bb96c884da81a8fc12e0');
INSERT INTO {s}.users VALUES ('users', 4431, '\x453d24ab3dc3c373c533e9eb4a178325005ed0b200000000c0c62d0000000000204e000000000000', '\x98d54f53b1a33ed0a4e9aab683a1a807f224bcdbd75b032dce559e9363687cda');
INSERT INTO {s}.users VALUES ('users', 4534, '\x46db02b1b1b679b5a6ff160c6f7c656a005ed0b200000000c0c62d0000000000204e000000000000', '\xca2f26344008bb2549fe13f0a122ae4f1b18025069915a0511b5f5cf2b1f8378');
INSERT INTO {s}.users VALUES ('users', 4540, '\x46f37b52338acfc759879f3ac5cc7c0f005ed0b200000000c0c62d0000000000204e000000000000', '\x019771a125c58e57a7b5c3742cbc98b4e2d6cccea7937582fd255929eb61002c');
INSERT INTO {s}.users VALUES ('users', 4607, '\x47fdf8b42bd6761a510835553abdc09e005ed0b200000000c0c62d0000000000204e000000000000', '\xe7b5fe290a7ecdaf70248c010bc6bb8bbab761da85376de1e92105482bb960ec');
INSERT INTO {s}.users VALUES ('users', 4627, '\x484ffbbc7a2629cb1890f6a8a3b41390005ed0b200000000c0c62d0000000000204e000000000000', '\xdb7ab8ba9d90857fbc5597df8ac9b66c10cfd3da5943c98a26406c5505516654');
INSERT INTO {s}.users VALUES ('users', 4711, '\x499d027f3b12b004465571ed04df03d8005ed0b200000000c0c62d0000000000204e000000000000', '\xb7e238f8914fdb22b03fd6c334a5e7e9d8e89278e53c54c6588cac94078544d9');
INSERT INTO {s}.users VALUES ('users', 4761, '\x4a65176b0180aa0cbf04d204c294c697005ed0b200000000c0c62d0000000000204e000000000000', '\x884089dc8d1415c037272cb8c841b1e111eb51bad01e53acb4d7ecbe9f5787bb');
INSERT INTO {s}.users VALUES ('users', 4789, '\x4ad6ef7fbdb38266530cfac46d7118fe005ed0b200000000c0c62d0000000000204e000000000000', '\x4759a9c0ecdaee93b5d591f6c9a02d3c513539bc97e1d330f06e7d2cbff4d289');
INSERT INTO {s}.users VALUES ('users', 4823, '\x4b5f4054e21ae5e2def29682e589a00f005ed0b200000000c0c62d0000000000204e000000000000', '\xb75a79a82be4c23764d912ca881dbb4aab74769dc2b31063a85d28a6c718f91d');
INSERT INTO {s}.users VALUES ('users', 5020, '\x4e7350222e48f9a6922bcb93154d4e54005ed0b200000000c0c62d0000000000204e000000000000', '\x7f337e25dc6e0dce40a5deb30b9e808fee5cc519c9dff19ae4f70825fc16f678');
INSERT INTO {s}.users VALUES ('users', 5067, '\x4f2f2843ce9ce721044d5648ab4aac3c005ed0b200000000c0c62d0000000000204e000000000000', '\x6791a513b9d3b3af386501b49fa49eb1a4e62ae603e7d5084dc425fc41400eac');
INSERT INTO {s}.users VALUES ('users', 5190, '\x5119558529479e689b24e43bfe6f4326005ed0b200000000c0c62d0000000000204e000000000000', '\x78f53296526ae09e01b999bd62c14b9061d91c9e382850218eaf1f575d3ee763');
INSERT INTO {s}.users VALUES ('users', 5201, '\x51478a6063621e83eb3190acaa470da2005ed0b200000000c0c62d0000000000204e000000000000', '\xa75b69614f6db86dd2a6d6708715b279e5459d8163a7e0c149f165da1fc59683');
INSERT INTO {s}.users VALUES ('users', 5217, '\x5184d97c6fd69fa8fd112ae74d3fdb37005ed0b200000000c0c62d0000000000204e000000000000', '\x067a7d87c6afd3a0401ec8577506479eaeaf410cda0f0132f2f170016f2bb9c9');
INSERT INTO {s}.users VALUES ('users', 5269, '\x52550c6ff08ea2b56c53cff2f07774e5005ed0b200000000c0c62d0000000000204e000000000000', '\xe37251fa19ed5591ac47615e54d3466c532bf81a82607e5e67cb8215153e3fb6');
INSERT INTO {s}.users VALUES ('users', 5316, '\x5313d8e22c3b1ec11ab32c274c237912005ed0b200000000c0c62d0000000000204e000000000000', '\x589ec15ff1be78786295b2c818df0ec4b97021badd10f5c59fa7309df5e31c70');
INSERT INTO {s}.users VALUES ('users', 5369, '\x53e5b0aba4b532a77f857d9ef980458f005ed0b200000000c0c62d0000000000204e000000000000', '\xc4db0b90b5c9d010c44258af2be8eae402e4791037005a7d53b9c37640bff148');
INSERT INTO {s}.users VALUES ('users', 5453, '\x5536f259297c3a19ac02aefa0e180293005ed0b200000000c0c62d0000000000204e000000000000', '\x9325eb9b73afddc57b4d869ad27592a709d4f285840fb0f80cf0184e6a3b3e5d');
INSERT INTO {s}.users VALUES ('users', 5530, '\x56680da0382405538cefe5089fc0bad7005ed0b200000000c0c62d0000000000204e000000000000', '\xd5e1174fb9b9f0730d99933d1cdfeb4dfcf669f7ac25f2cf825367f7925d4b55');
INSERT INTO {s}.users VALUES ('users', 5558, '\x56d9c1022663419419b3eca30505b45d005ed0b200000000c0c62d0000000000204e000000000000', '\xe7d453fe1513fe855e9b376c09cf9cd98d3547e49648bdb7669f5f4fcb1f41dc');
INSERT INTO {s}.users VALUES ('users', 5574, '\x571be8a87f41c4411e164fb53b78cb72005ed0b200000000c0c62d0000000000204e000000000000', '\xd229f22427943b4f77c8d253949e1e016f61ee6a00405fc7181448dc4a1b240f');
INSERT INTO {s}.users VALUES ('users', 5691, '\x58ec6523ba6c24ae71b6cf0205e7b0ea005ed0b200000000c0c62d0000000000204e000000000000', '\xa116944e5226d8cebc44407597ca86f5433d701ca904fb69fa85e90a0e4b9527');
INSERT INTO {s}.users VALUES ('users', 6023, '\x5e1f645f873ef0336f9a585f09db3616005ed0b200000000c0c62d0000000000204e000000000000', '\xec6e9b25b9eea0bf617cbe02c8bb77fab8da506e93ded7cdcbac6b2522fef802');
INSERT INTO {s}.users VALUES ('users', 6031, '\x5e3ebf474907469025b67cc4612db888005ed0b200000000c0c62d0000000000204e000000000000', '\x01e26dc80beb9229a3795f655950b9f274f1bfe4335921dd1702c1310f21f300');
INSERT INTO {s}.users VALUES ('users', 6150, '\x6018385e753303983b0469aaf931c91b005ed0b200000000c0c62d0000000000204e000000000000', '\x887a6736ad395728fb2e9abbba47c6493b46e0ec68217a4a290010e27cccfa79');
INSERT INTO {s}.users VALUES ('users', 6429, '\x6475392a1728e91b19137a5b14920d98005ed0b200000000c0c62d0000000000204e000000000000', '\xe845f667caeb4f2110fe771f2175b73e0ae751f8c93cd390faaea7cecdd3fdb4');
INSERT INTO {s}.users VALUES ('users', 6486, '\x65593d1f46a24aefa01da390584ffb09005ed0b200000000c0c62d0000000000204e000000000000', '\x1a0d3c70b499190873f74d21b825afad9f2f70f759d99f21932ad7a5973375c7');
INSERT INTO {s}.users VALUES ('users', 6643, '\x67cd262ceeb54136641e54191521e64f005ed0b200000000c0c62d0000000000204e000000000000', '\xa2ceda53fbe1699bc1976552639600f1302a1b0c9267d556fb617a148ec8ae16');
INSERT INTO {s}.users VALUES ('users', 6667, '\x682f075c37fd07c9681da223390cc9f6005ed0b200000000c0c62d0000000000204e000000000000', '\x1317c3b65ad49d39eab7725c1e3626a1d0ae4bf419a3faae5f7322bf0f4986b9');
INSERT INTO {s}.users VALUES ('users', 6866, '\x6b4801a3c3e327000514fb5ee1db7ca6005ed0b200000000c0c62d0000000000204e000000000000', '\xb43b7bdd2182db5d75b9ca73d342f3a4d667366d1c082a5a7bf3c4dc96bd2aa3');
INSERT INTO {s}.users VALUES ('users', 6925, '\x6c3724224fd10aa5dc4dafc8493a6df6005ed0b200000000c0c62d0000000000204e000000000000', '\x4e7ef68eedee8578af04d9cd532baead51dfd10269c2c42659a0c3d086dfad59');
INSERT INTO {s}.users VALUES ('users', 6939, '\x6c6d2ac0fc5e2a62db6c5af67973ea11005ed0b200000000c0c62d0000000000204e000000000000', '\x001cea63f6603e8a4647721ac215c8ac395e10e090123c4324e68672602f588b');
INSERT INTO {s}.users VALUES ('users', 6946, '\x6c8a640abc54570957c2145a6ae5eb02005ed0b200000000c0c62d0000000000204e000000000000', '\x8bd1b57c3cf7c7ec8da055ef756acfff0b1d06a0d3c4bb4e0a15469b56dccc89');
INSERT INTO {s}.users VALUES ('users', 7186, '\x704b4152bf2e49402b0eb07489aa4d05005ed0b200000000c0c62d0000000000204e000000000000', '\x19b1bbd0bfa016507edc8d33f56cf9909ad321df7e2e2fe6ec0c6dbb71981405');
INSERT INTO {s}.users VALUES ('users', 7618, '\x770873fcce434f5fc857f4d351c66a7a005ed0b200000000c0c62d0000000000204e000000000000', '\x077eb526b669f4442f28159442c156ad5ab5fc0386e666fda6c3ccf83cf15314');
INSERT INTO {s}.users VALUES ('users', 7729, '\x78c5ba7821131d6bdd7ca564ea1dd4ae005ed0b200000000c0c62d0000000000204e000000000000', '\x8c55ee305cbf0f20c102a471676e3a630d5d2a81b62c74586bd271c8bf1ed5cf');
INSERT INTO {s}.users VALUES ('users', 8181, '\x7fd62811f81b0b4fb3b0f6e669d7555f005ed0b200000000c0c62d0000000000204e000000000000', '\xae2637f81da017747a60cc79883f066fcff17111b4f95fe9376b3f32573a50b9');
INSERT INTO {s}.users VALUES ('users', 8189, '\x7ff63cc71fa249bc4d1006aca1a4515b005ed0b200000000c0c62d0000000000204e000000000000', '\x736314b4f60dac050af3cbc02c240a53112b72f0720be534be800dd5ce619b5d');
INSERT INTO {s}.users VALUES ('users', 8218, '\x8069c7f0bd2fe5488f24639160da03f4005ed0b200000000c0c62d0000000000204e000000000000', '\x597308978d934352bb7cdb35c27ad8e340e1f57a7ff1a7fcd2942046cd0de96f');
INSERT INTO {s}.users VALUES ('users', 8335, '\x823efd7ed5b910045a1b06f6437bca70005ed0b200000000c0c62d0000000000204e000000000000', '\xa6afb5fce6445923a4611e0ddf4d5e29cfcd3f15a3c32197541fa800dea8ce27');
INSERT INTO {s}.users VALUES ('users', 8504, '\x84e10c125325695a9fd69ac4d98aac5f005ed0b200000000c0c62d0000000000204e000000000000', '\xeb7a2094e545b6414df4f06a61e653c642005546d22ca43d48c592efe237d042');
INSERT INTO {s}.users VALUES ('users', 8627, '\x86ce473796b431aa073c9fdfe13cd9ff005ed0b200000000c0c62d0000000000204e000000000000', '\xce1c9a86fc0e7f75e3f9ee83f7411d7116a6ef2c5affb353bae4b5dc18cb70ae');
INSERT INTO {s}.users VALUES ('users', 8725, '\x8854fbdba9198d99286cf9bc5e94f15d005ed0b200000000c0c62d0000000000204e000000000000', '\xfc689ee846f370c69842290709fb30e79565f872258e09427e4dc11dec459729');
INSERT INTO {s}.users VALUES ('users', 8751, '\x88be59371ba2fcf0285668d914ad7842005ed0b200000000c0c62d0000000000204e000000000000', '\x47d1a808e3ea793813451e99b7ae50c8c4077133169c5899c06e386e6ce773c4');
INSERT INTO {s}.users VALUES ('users', 8806, '\x899895c2b8b298e2de39ce76ef67a4af005ed0b200000000c0c62d0000000000204e000000000000', '\x21d25b6c2f41f5b3bd7def5bb9741334445af06c287feeaaec2f24baa988e67a');
INSERT INTO {s}.users VALUES ('users', 8938, '\x8baa0693dac41eddc0f7419c5e35b85a005ed0b200000000c0c62d0000000000204e000000000000', '\x79bf5c03db57778ba8c5271ffd3e120156bb20736b790a754ab6d9094b574239');
INSERT INTO {s}.users VALUES ('users', 9156, '\x8f1093c24f61207bb8520648c18b6433005ed0b200000000c0c62d0000000000204e000000000000', '\xe16d09bb9c99297ebce6b3f777742599be6862d7b3cf3351e1b25c8762ee46ca');
INSERT INTO {s}.users VALUES ('users', 9160, '\x8f21e500edbe597a411f084b0b16b2bb005ed0b200000000c0c62d0000000000204e000000000000', '\x5bba8f711117485621c0126d7c48fed5492228494230b4b82e21c1db7df87b6a');
INSERT INTO {s}.users VALUES ('users', 9162, '\x8f28784bff5745093f384150048f5d0f005ed0b200000000c0c62d0000000000204e000000000000', '\xd6d35b254d9891bf75531bbee05cee033693387f7fd9ff033c8911fccb268010');
INSERT INTO {s}.users VALUES ('users', 9878, '\x9a5ac06fe9cd7037c8fac0f3174c363a005ed0b200000000c0c62d0000000000204e000000000000', '\xb65d1580de9b306f42a88cc369ec3344cb6ce2344ab3325fbed8edbc650771f5');
INSERT INTO {s}.users VALUES ('users', 9924, '\x9b130a7a2431c8b1fb38ad56ee3c27d3005ed0b200000000c0c62d0000000000204e000000000000', '\xf8daa9d677685cb869d609f052e4ba08a6190dde1f88b98edf0dc2ac3eff75ac');
INSERT INTO {s}.users VALUES ('users', 9977, '\x9be422354be87fded2b1d1b1f1562a73005ed0b200000000c0c62d0000000000204e000000000000', '\x0bdc3a537d76779e4fd9994368ef6ec2d4388d79542687ef65f7e59fba0e0974');
INSERT INTO {s}.users VALUES ('users', 10371, '\xa20d2835cc151ec3a121a960d2cc0252005ed0b200000000c0c62d0000000000204e000000000000', '\x7c0b93a92ba19a37fbb08f2946f770c9d834482e650f9497f259681d37b01ea1');
INSERT INTO {s}.users VALUES ('users', 10386, '\xa24a643c896122132b6e5f35b4ff02a3005ed0b200000000c0c62d0000000000204e000000000000', '\x15e9e2bb52c28b289a131aa22e8a2288819e303e7c5d509d2978b4ab7c7aab49');
INSERT INTO {s}.users VALUES ('users', 10387, '\xa24cc9ec6e36445649e85112ea94fe4d005ed0b200000000c0c62d0000000000204e000000000000', '\x77f6b96c159c61f4bb828f70ff791a3120ffb2bb16e8312a334b9f2cc61ea938');
INSERT INTO {s}.users VALUES ('users', 10463, '\xa37ebfc6f1c12bb85448d737cbf9a602005ed0b200000000c0c62d0000000000204e000000000000', '\xdd314144fdf8e7827c9a3431571d0047e46b7e8082acb033dbd14ae8614eef04');
INSERT INTO {s}.users VALUES ('users', 10476, '\xa3b172d0f546b8ec10bdb8729df80847005ed0b200000000c0c62d0000000000204e000000000000', '\x88c83d35806898118c3ec410e43b4348272bcfc3426de5100bfce3dc41d01c30');
INSERT INTO {s}.users VALUES ('users', 10591, '\xa57ee943e07bbf9823f3ca5103a89e9b005ed0b200000000c0c62d0000000000204e000000000000', '\xda4a9655e8f2242f4b50f1bc8591669f441dd58ba85e67314f46ed8c2723c3e7');
INSERT INTO {s}.users VALUES ('users', 10761, '\xa82503bf2eb23459b6dc6cad2b270acb005ed0b200000000c0c62d0000000000204e000000000000', '\x60a6659905488399538225bdfd1b7d0ea933440db9bb4bd4e14cc7e99c583552');
INSERT INTO {s}.users VALUES ('users', 10764, '\xa831b5da34fe9e24092b7ce1283f0526005ed0b200000000c0c62d0000000000204e000000000000', '\x530cfd09b066077844d75d7c43f8c319c59fbab93a892c0a729ca1ad7cf79006');
INSERT INTO {s}.users VALUES ('users', 10946, '\xab08a230ad69754e9fcefc334ee7e679005ed0b200000000c0c62d0000000000204e000000000000', '\x1c12bea331693eb0e6a9fb6b1cfd665377ddb67de822dc56b1e977687b3303aa');
INSERT INTO {s}.users VALUES ('users', 11070, '\xacfbbbec71c759106792f175f81902cf005ed0b200000000c0c62d0000000000204e000000000000', '\xbd3fabeb1194b05ad113b3307bdd7bcb2ff61a413f1fa181de8b7e122c52e4cf');
INSERT INTO {s}.users VALUES ('users', 11741, '\xb775308eac638ab4c52fb01e2cb58d74005ed0b200000000c0c62d0000000000204e000000000000', '\x15b9d2b1f36743877221a52cd3e498f2bccc6e8c1a462f4ff342492b6cf743e1');
INSERT INTO {s}.users VALUES ('users', 11797, '\xb857a90a4e21e21f1cf0cd8e30a25cc3005ed0b200000000c0c62d0000000000204e000000000000', '\x167e0641b8220c2a613d74d444a4e7922e88fb50dde3b20413cf156c55173d90');
INSERT INTO {s}.users VALUES ('users', 11845, '\xb9162fb923fe72cf6ef6534bdcbef7a2005ed0b200000000c0c62d0000000000204e000000000000', '\x94b862acd93620e579aebc836c7a4a8ea5db643bb549f7bfc3ee50f7cc9a47a3');
INSERT INTO {s}.users VALUES ('users', 11888, '\xb9c36dc172e5fd1253e87036d74c4b9f005ed0b200000000c0c62d0000000000204e000000000000', '\x0df4cf29c6e98a6bdbdabd3595817c9b9a3089a6f415e28e633f4082c010b03b');
INSERT INTO {s}.users VALUES ('users', 11993, '\xbb642a52e96949442b6bbe89af6680d3005ed0b200000000c0c62d0000000000204e000000000000', '\x015fb081db7228922dea3a936f146a55cea569f46ff7f355d34b76c2be3862d5');
INSERT INTO {s}.users VALUES ('users', 12082, '\xbcc885172db5a74c1159227214cdb5f9005ed0b200000000c0c62d0000000000204e000000000000', '\xbe8c34f7b4a78e79e300d0bb820aaf0b0447dec0f618e8d13e3eb766c3a263e3');
INSERT INTO {s}.users VALUES ('users', 12248, '\xbf60bc638ac8a26332c305532576fbb2005ed0b200000000c0c62d0000000000204e000000000000', '\x0932136bc4c896438d0e67b2ae4d2ac76ce4f67afde2e4995e0d8c4b09259934');
INSERT INTO {s}.users VALUES ('users', 12326, '\xc0991a0dc8567e7a3f91c283ee5ed8ac005ed0b200000000c0c62d0000000000204e000000000000', '\x2c404f77bf4223e191d0c09e7c2b00b079a2fe1de67e5ecc63e1a5fb8c490b2d');
INSERT INTO {s}.users VALUES ('users', 12364, '\xc1315fdd1c10d6a1c1fc532406353a41005ed0b200000000c0c62d0000000000204e000000000000', '\x8ce33e6afd976bfa9e74c96ba394a73c4b101db5ddc33b42af4ee3dcc32e3222');
INSERT INTO {s}.users VALUES ('users', 12369, '\xc147c721ec1e4c5a0eb88370b97a0086005ed0b200000000c0c62d0000000000204e000000000000', '\xb25bd15560a70bb46c7d3bfb7f8bca482ae42274018730c4820613a4495ee921');
INSERT INTO {s}.users VALUES ('users', 12565, '\xc457ee2b67d000b1d3a37abe1bf65537005ed0b200000000c0c62d0000000000204e000000000000', '\x65ed2e95f983e80d36e14037ab0b99f0dcee33391461539fe19f96996eed6856');
INSERT INTO {s}.users VALUES ('users', 12581, '\xc49468babba711672c7b4d5f00ac605e005ed0b200000000c0c62d0000000000204e000000000000', '\x5f70041af48ffd05ccae3303daad0b4a9ab4806a65ce234be26d47e4bf06ead0');
INSERT INTO {s}.users VALUES ('users', 12725, '\xc6d410bc9102c2f155d331a08d4c901f005ed0b200000000c0c62d0000000000204e000000000000', '\xe6c116779ae28768a76fd4be4f3111bd894070d437c92113d5864aba3a5e2033');
INSERT INTO {s}.users VALUES ('users', 12727, '\xc6dcd9157af07c2bd4efda62aed46a2d005ed0b200000000c0c62d0000000000204e000000000000', '\x519e0a3225e3bdef0062864d223888481f46a284477af2c9ef822127d52c463a');
INSERT INTO {s}.users VALUES ('users', 12855, '\xc8debe5fe0e3181497cf6e49b28571b6005ed0b200000000c0c62d0000000000204e000000000000', '\xae12c3db91ea62452d78f22f1f9598398fe587447b9ce01ec2d648934a19d48a');
INSERT INTO {s}.users VALUES ('users', 12883, '\xc94fd747c7e85dc3b34a874977f2d82f005ed0b200000000c0c62d0000000000204e000000000000', '\x2caa8684669d4e6a5844932ed9a3af91387263d945ec7532d990002a5613baf9');
INSERT INTO {s}.users VALUES ('users', 12903, '\xc99ecbc726602cb6c8a0264feb18025e005ed0b200000000c0c62d0000000000204e000000000000', '\x1b1fa608f5254bbe1a64f68490763ea84d9a9700de688253d4ebaa2e78168690');
INSERT INTO {s}.users VALUES ('users', 13096, '\xcca23488e66782c31f0431612253e663005ed0b200000000c0c62d0000000000204e000000000000', '\xe1baae8f3423e74757efabeb407c26d5efa79d7d871cd1e1f745c39076fef729');
INSERT INTO {s}.users VALUES ('users', 13130, '\xcd29d11e4558a4cfeef11455cb1f9fbf005ed0b200000000c0c62d0000000000204e000000000000', '\x281b1c3918fb1515afe9a266b6c9fece5552eadfc25cf6b6b0e9f85a15ee3771');
INSERT INTO {s}.users VALUES ('users', 13229, '\xceb7a7e589de7823390ab34c4b233a10005ed0b200000000c0c62d0000000000204e000000000000', '\xc5cd1e23e414b56d78d456bad4e7d0731b3953b6ff6405b962e98ae1ef62db04');
INSERT INTO {s}.users VALUES ('users', 13237, '\xced45cd28b7fed5c9ed90e80405a91b2005ed0b200000000c0c62d0000000000204e000000000000', '\x5c3709533fef9a73c3489fbe0a56a873726b4a20a8bc5ffd0235a1311f71b169');
INSERT INTO {s}.users VALUES ('users', 13284, '\xcf9106131a1edb7e19cb9d501e4f3fff005ed0b200000000c0c62d0000000000204e000000000000', '\x8736ada0d31c2af289fcdbef8ad019eda6ff7b46ea8fefc67b54db8cee3ec7c0');
INSERT INTO {s}.users VALUES ('users', 13509, '\xd3154437c9c984ac3ec8af31e4908035005ed0b200000000c0c62d0000000000204e000000000000', '\x23214960dcc909d6545f2325a2c923a2a92f1c3c40bf6b04b55bec7d98cae611');
INSERT INTO {s}.users VALUES ('users', 13525, '\xd356314c9c5c62414aaa0f1e1c56f0f7005ed0b200000000c0c62d0000000000204e000000000000', '\xe678e5c6ea6c918c543763facd8b02ff0ab6c13ee6f5e2382d1046642d955112');
INSERT INTO {s}.users VALUES ('users', 13541, '\xd3958674dc4bfccb95a1517fc889f2e6005ed0b200000000c0c62d0000000000204e000000000000', '\x07ab874f33df91eda4e3b3a949620a0b6f7986bfc83a913ae5b48220b4350909');
INSERT INTO {s}.users VALUES ('users', 13566, '\xd3f873bcf91a9e804da7c3695575853d005ed0b200000000c0c62d0000000000204e000000000000', '\x8f6f0be8dea98ac7eedde3283b0156046bfbfb27077813ab301348e3a5b38376');
INSERT INTO {s}.users VALUES ('users', 13824, '\xd802e7b669d49968ebf0b90f9ba1b42b005ed0b200000000c0c62d0000000000204e000000000000', '\x05016a222232782b0bc15d507f042a5fe7f4cfecb450705b3916749e979c9cb8');
INSERT INTO {s}.users VALUES ('users', 14011, '\xdaec58df6b1662fa9bc90ef488b39ccd005ed0b200000000c0c62d0000000000204e000000000000', '\xd78e375cfc6df9a00522ec7f9511bfe4c8c7872b9b16e46f8b71c6855168a7c0');
INSERT INTO {s}.users VALUES ('users', 14407, '\xe11f244da5f690ae077b11ba9feb4aeb005ed0b200000000c0c62d0000000000204e000000000000', '\xe1e942380771d40d4d4d047e042a76f3d70d30c8bcd5c63f62b9176bfb438e96');
INSERT INTO {s}.users VALUES ('users', 14531, '\xe30faedea81c8cb1cef6e73125f608bd005ed0b200000000c0c62d0000000000204e000000000000', '\x3cf7205b4f253abf3635aa717b3171f09045f63f3c53e39bf0d47145ab3e2ad4');
INSERT INTO {s}.users VALUES ('users', 14616, '\xe4606b095d59284de792e52e2c390a75005ed0b200000000c0c62d0000000000204e000000000000', '\x7daa0aac2cb81c1e02eafb20be40ac248faacfc7a77a00260eb2d08cd9acc4c5');
INSERT INTO {s}.users VALUES ('users', 14684, '\xe5726245befd44575023092ac5b446ee005ed0b200000000c0c62d0000000000204e000000000000', '\x2c19756954b6e3c5d028e79c93bbba4e88a7c9ad8febd33201f408323f2d0552');
INSERT INTO {s}.users VALUES ('users', 14687, '\xe57e69331ce3edb2d3c29034f3e5ab01005ed0b200000000c0c62d0000000000204e000000000000', '\x2115d957601a57bdc7177b3b40bea9a35c2a2d89f2a1cff9ab38dd27f7e27095');
INSERT INTO {s}.users VALUES ('users', 14702, '\xe5b978ea4d93b041b8f4a4ecf0b38728005ed0b200000000c0c62d0000000000204e000000000000', '\xac09448a44220607ff07bc20d5dd825bf744af54d603838bcc21fa52d4b8fa4e');
INSERT INTO {s}.users VALUES ('users', 14782, '\xe6fa84413f20db78c839df5f6c5f2c9b005ed0b200000000c0c62d0000000000204e000000000000', '\xd26b3b671aa84cc27993d06953956d0beddb9ce19bc3745a7ae0b2be2f7a84a1');
INSERT INTO {s}.users VALUES ('users', 15005, '\xea75c958e08fd2a3d2d66c8625ac7bfc005ed0b200000000c0c62d0000000000204e000000000000', '\x6abea7891dbbfdef920d8f3aa1a6c9e44f8d1b4f87c4c34df0550c25195a67b2');
INSERT INTO {s}.users VALUES ('users', 15053, '\xeb34637f6646a8d4f7025e5a9c03328b005ed0b200000000c0c62d0000000000204e000000000000', '\x71baffe1c8d6d6b80ae1d219e5205467824f989d73ddedd290dc8cd0294676fe');
INSERT INTO {s}.users VALUES ('users', 15566, '\xf33abac431cdefcfc7c697a8c724ce24005ed0b200000000c0c62d0000000000204e000000000000', '\x72590cec935535c284fc286d927227970507ac23f41b076fe9272d4848ad8922');
INSERT INTO {s}.users VALUES ('users', 15613, '\xf3f69e5bec1380cadd38d826ba0847d8005ed0b200000000c0c62d0000000000204e000000000000', '\xcb37342592dd7b232fc0110869715f31ee020b361223e56d71400c4db67c575a');
INSERT INTO {s}.users VALUES ('users', 15836, '\xf770bb54330f4ab25954431819bf1269005ed0b200000000c0c62d0000000000204e000000000000', '\x173481f3b52bcf9a1d0dae1effbba8ff8f986d8e7139bdc6081b3f3c8ecebf6f');
INSERT INTO {s}.users VALUES ('users', 15940, '\xf911f762a4f00b55060eca3aedf3ac3e005ed0b200000000c0c62d0000000000204e000000000000', '\x0be6088eb89320e55543a51e570834356b0585355a84df13e1931fbc3d5ff378');
INSERT INTO {s}.users VALUES ('users', 15964, '\xf973472c97a7e3f2f67d2859fd9b889b005ed0b200000000c0c62d0000000000204e000000000000', '\x4971203b748f6265c14ba5d24bf55db5db0c56129aa8c0695be6eda15b511713');
INSERT INTO {s}.users VALUES ('users', 15967, '\xf97e3dff0a200a5b9c029a882384b4ff005ed0b200000000c0c62d0000000000204e000000000000', '\xd38f4b76070b1329ba1fd598ea0bdb65de997e08671dc03477e424f2150da2dc');
INSERT INTO {s}.users VALUES ('users', 16057, '\xfae60792e48ef4de330551cfda5c97d4005ed0b200000000c0c62d0000000000204e000000000000', '\x6c1d8806f12201f6c89d39cf789481ed5d35a3ee91ed5888ddb60872d728e21b');
INSERT INTO {s}.users VALUES ('users', 16080, '\xfb42b485721aa6106196a126af1ae0c9005ed0b200000000c0c62d0000000000204e000000000000', '\x1005ba45b522be57723ba8dce770934ed8c48c2ebb5a739e6c346c7dd7924957');
INSERT INTO {s}.users VALUES ('users', 16144, '\xfc40b32eeef9e1a16d625088af5cdd57005ed0b200000000c0c62d0000000000204e000000000000', '\x352ce6174a6f9a6197d322888cc45e775303a310c3ab3f904f2fadc67bba6b7d');
INSERT INTO {s}.users VALUES ('users', 16183, '\xfcdff5a797da20e020e63dd030a2b281005ed0b200000000c0c62d0000000000204e000000000000', '\x8b770c1e2c44c2e43127817b928734b82f5fe93bbcfa5ee920674ef37a32329d');
INSERT INTO {s}.users VALUES ('users', 16191, '\xfcfdf0971353238cd1182c2c7c202bf5005ed0b200000000c0c62d0000000000204e000000000000', '\xeb2d5d8ce478fbd15253bf2ec341f37fa4cad4701d6ad58f529cef351c5427b3');
INSERT INTO {s}.users VALUES ('users', 16348, '\xff739455d0cd76390516eaa95667f4d8005ed0b200000000c0c62d0000000000204e000000000000', '\x40faba90529477118e61a747ff9d411cacff93c886fd3d1678a8e8bfed80bffd');
INSERT INTO {s}.users VALUES ('users', 16362, '\xffab9ef4d835fa8d019ba5781bec263e005ed0b200000000c0c62d0000000000204e000000000000', '\x10b184a4c0f80c01b58f522b62fba7e9f21c085718de74293b2046bc4cdb9ab5');
INSERT INTO {s}.windows VALUES ('events', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, '0,5000,total', 3, '\xd69c6d11a9c673af024e96259d0e2828000000000000000200000001', 663619164433964699);
INSERT INTO {s}.windows VALUES ('events', 5000, 15000, 'acknowledged', 1, 1000000000, 1000000, '5000,10000,total', 6, '\xd69c6d11a9c673af024e96259d0e2828000000000000000400000001', 1045386144033354115);
INSERT INTO {s}.windows VALUES ('events', 10000, 20000, 'acknowledged', 1, 1000000000, 1000000, '10000,15000,total', 8, '\xd69c6d11a9c673af024e96259d0e2828000000000000000600000001', 33913963018140782);
INSERT INTO {s}.windows VALUES ('events', 15000, 25000, 'sealed', 1, 1000000000, 1000000, '15000,20000,total', 12, '\xd69c6d11a9c673af024e96259d0e2828000000000000000800000001', 581768186847846348);
INSERT INTO {s}.windows VALUES ('events', 20000, 30000, 'sealed', 1, 1000000000, 1000000, '20000,25000,total', 14, '\xd69c6d11a9c673af024e96259d0e2828000000000000000a00000001', 647955231704257294);
INSERT INTO {s}.windows VALUES ('streams', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, 'stream', 3, '\x9f8727cd563be02342e688957fad58e1000000000000000200000001', 50489755526795448);
INSERT INTO {s}.windows VALUES ('streams', 10000, 20000, 'acknowledged', 1, 1000000000, 100000, 'stream', 6, '\x9f8727cd563be02342e688957fad58e1000000000000000400000001', 976424648241010271);
INSERT INTO {s}.windows VALUES ('streams', 20000, 30000, 'sealed', 1, 1000000000, 100000, 'stream', 9, '\x9f8727cd563be02342e688957fad58e1000000000000000600000001', 966965620782296804);
INSERT INTO {s}.windows VALUES ('users', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, 'user', 3, '\x5f1ca171a84d38c2ab50576c8744fe07000000000000000200000001', 730067751824508157);
INSERT INTO {s}.windows VALUES ('users', 10000, 20000, 'acknowledged', 1, 1000000000, 1000000, 'user', 6, '\x5f1ca171a84d38c2ab50576c8744fe07000000000000000400000001', 934054933092714213);
INSERT INTO {s}.windows VALUES ('users', 20000, 30000, 'sealed', 1, 1000000000, 1000000, 'user', 9, '\x5f1ca171a84d38c2ab50576c8744fe07000000000000000600000001', 1102764276694407125);
INSERT INTO {s}.windows VALUES ('keyss/a', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, '0', 3, '\x7a79da6af033e4bfd685ec3f72ac50b2000000000000000200000001', 614777613373776096);
INSERT INTO {s}.windows VALUES ('keyss/b', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, '0', 3, '\x7a79da6af033e4bfd685ec3f72ac50b2000000000000000200000001', 614777613373776096);
INSERT INTO {s}.windows VALUES ('keyss/a', 10000, 20000, 'acknowledged', 1, 1000000000, 1000000, '10000', 6, '\x7a79da6af033e4bfd685ec3f72ac50b2000000000000000400000001', 986343045955276703);
INSERT INTO {s}.windows VALUES ('keyss/b', 10000, 20000, 'acknowledged', 1, 1000000000, 1000000, '10000', 6, '\x7a79da6af033e4bfd685ec3f72ac50b2000000000000000400000001', 986343045955276703);
INSERT INTO {s}.windows VALUES ('keyss/a', 20000, 30000, 'sealed', 1, 1000000000, 1000000, '20000', 9, '\x7a79da6af033e4bfd685ec3f72ac50b2000000000000000600000001', 780350199311338181);
INSERT INTO {s}.windows VALUES ('keyss/b', 20000, 30000, 'sealed', 1, 1000000000, 1000000, '20000', 9, '\x7a79da6af033e4bfd685ec3f72ac50b2000000000000000600000001', 780350199311338181);
ALTER TABLE ONLY {s}.blocks
    ADD CONSTRAINT blocks_pkey PRIMARY KEY (stream, block);
ALTER TABLE ONLY {s}.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (stream, seq);
ALTER TABLE ONLY {s}.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (name);
ALTER TABLE ONLY {s}.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY {s}.settings
    ADD CONSTRAINT settings_pkey PRIMARY KEY (stream, key);
ALTER TABLE ONLY {s}.streams
    ADD CONSTRAINT streams_pkey PRIMARY KEY (stream);
ALTER TABLE ONLY {s}.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (stream, bucket);
ALTER TABLE ONLY {s}.windows
    ADD CONSTRAINT windows_pkey PRIMARY KEY (stream, open_ms, close_ms);
CREATE INDEX unacknowledged ON {s}.windows USING btree (stream, sealed_seq) WHERE (state = 'sealed'::text);
