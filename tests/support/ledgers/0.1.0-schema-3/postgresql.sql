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
INSERT INTO {s}.journal VALUES ('events', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b343030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a342e302c22746f74616c5f64656c7461223a31652d30362c22746f74616c5f72686f223a33302e307d7d2c2273706563696669636174696f6e223a7b226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a3330307d2c2273747265616d223a7b226e616d65223a226576656e7473227d2c2277696e646f77223a7b226c656e677468223a22313073222c22736c696465223a223573222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2236646262386566623461323962363234366262623932626439323633343534333135353539326437626366373965333232343938396661393636343132376262222c2273747265616d223a226576656e7473222c22746f74616c223a5b33303030303030303030302c313030303030303030305d2c22756e6974223a226576656e74227d', '\xa5a61d97cddd636cdce17e05045bcbad523e276a7ec82b90c56258b7ec6711f3');
INSERT INTO {s}.journal VALUES ('events', 1, 'setting', 0, 0, 0, 0, 'first window', '\x30', '\x07ea1110f99d1f10e8e9547c42c3d1750cedccac1965261f8f0a000341345b6b');
INSERT INTO {s}.journal VALUES ('events', 2, 'charge', 0, 10000, 1000000000, 1000000, '0,5000,total', '\x', '\x6dc789af8320013f1b9621a6826435cca945ee5fb242af143ad5296f80cca35f');
INSERT INTO {s}.journal VALUES ('events', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e34353835343439313031373936342c34392e3030343239393430313139373630365d2c227369676d61223a5b302e3030363236303038313831333031363235372c302e3031323833333839323437313230373832375d2c22636f756e74223a3139362c22636f72655f636f756e74223a3136372c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e31343739353931383336373334363933397d2c22696e74657276616c223a5b5b32302e34343632373531343938323631332c32302e34373038313436373035333331355d2c5b34382e39373931343439373139353430342c34392e30323934353338333034343131375d5d7d', '\x4fa58623f3d781194373d75b3d48f97e80515b850c4c8ea6bd6040c893f48f14');
INSERT INTO {s}.journal VALUES ('events', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\xbedb3dd072cf14dbc1c57bc85bcd849c7c685285208247c6b3ddd01db3d41677');
INSERT INTO {s}.journal VALUES ('events', 5, 'charge', 5000, 15000, 1000000000, 1000000, '5000,10000,total', '\x', '\x78be094105ce96645765b10793506ac5828420bee8e36146e22ac709b5ab6177');
INSERT INTO {s}.journal VALUES ('events', 6, 'seal', 5000, 15000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a353030302c2277696e646f775f636c6f73655f6d73223a31353030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3438373339333534383338373039372c34382e3933333330333232353830363435355d2c227369676d61223a5b302e303036383830343633313633333633303935352c302e3031333635363234363631333730373232345d2c22636f756e74223a3230352c22636f72655f636f756e74223a3135352c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e32343339303234333930323433393032347d2c22696e74657276616c223a5b5b32302e3437333930373834303538363930342c32302e35303038373932353631383732395d2c5b34382e39303635333639383234343335392c34382e39363030363934363931363933325d5d7d', '\x1643e482c105426cb3225043e2fb14ea4bfc70e0760e7e22e00a509860084152');
INSERT INTO {s}.journal VALUES ('events', 7, 'charge', 10000, 20000, 1000000000, 1000000, '10000,15000,total', '\x', '\x9238933d6ca16e25e7c3cfac5a2da6834319d1ce39c16d554addadd5f56e07c5');
INSERT INTO {s}.journal VALUES ('events', 8, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e343531313337352c34392e303038393132355d2c227369676d61223a5b302e3031323533373432323833383537323532322c302e3032353033363135353238343532373335345d2c22636f756e74223a3230372c22636f72655f636f756e74223a3136302c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e32323730353331343030393636313833377d2c22696e74657276616c223a5b5b32302e343236353634313531323336342c32302e3437353731303834383736333630355d2c5b34382e39353938343136333536343233332c34392e3035373938333336343335373637355d5d7d', '\xbb3f93016f3020e3e1df7c96137b300907698b7c9bf350d203f83a4ee586c498');
INSERT INTO {s}.journal VALUES ('events', 9, 'acknowledge', 5000, 15000, 0, 0, '', '\x', '\x01acc06f4bd2de58a91725e99cb148c761e11ce12d04266bfc508859523ade69');
INSERT INTO {s}.journal VALUES ('events', 10, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\x13f13504ff7fbc2597630d2c4a6aaf1504a3c47c42c02d60a91571dc47c02dba');
INSERT INTO {s}.journal VALUES ('events', 11, 'charge', 15000, 25000, 1000000000, 1000000, '15000,20000,total', '\x', '\x4ad6632478ace6d1da31e50d0076f98bdc235539764312f9fba7b9846c7f4f7e');
INSERT INTO {s}.journal VALUES ('events', 12, 'seal', 15000, 25000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a31353030302c2277696e646f775f636c6f73655f6d73223a32353030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3439393839343430393933373838372c34382e39323235353930303632313131385d2c227369676d61223a5b302e3031303735333638363335373937313538372c302e30323135303030373837363939303630315d2c22636f756e74223a3139392c22636f72655f636f756e74223a3136312c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e31393039353437373338363933343637337d2c22696e74657276616c223a5b5b32302e3437383831373138343637363236332c32302e3532303937313633353139393531325d2c5b34382e3838303431383835313832323136342c34382e393634363939313630363030325d5d7d', '\x383d34710f33fcf4d1530920f84e20975330d777e832f43348a79a6683f8b216');
INSERT INTO {s}.journal VALUES ('events', 13, 'charge', 20000, 30000, 1000000000, 1000000, '20000,25000,total', '\x', '\xfe5286ff639b0ee377ab9b0df42955d323b273dd4f6b16e5dcf57e011124b6e1');
INSERT INTO {s}.journal VALUES ('events', 14, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e35333333373033373033373033372c34382e39313530383634313937353330395d2c227369676d61223a5b302e3030363836333233363534313930323935312c302e3031333735323138383339373235343437315d2c22636f756e74223a3230312c22636f72655f636f756e74223a3136322c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e31393430323938353037343632363836367d2c22696e74657276616c223a5b5b32302e35313939313834323637343832342c32302e353436383232333133393932355d2c5b34382e38383831333231333034393434372c34382e39343230343037303930313137315d5d7d', '\x2662d944755a6f38bf01018aa1871ab6efcaee128c4bbcb40a12e329042396eb');
INSERT INTO {s}.journal VALUES ('streams', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b343030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a342e307d7d2c2273706563696669636174696f6e223a7b226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c226d6574686f64223a22747261636b696e67222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a3135307d2c2273747265616d223a7b226e616d65223a2273747265616d73222c22756e6974223a2273747265616d227d2c2277696e646f77223a7b226c656e677468223a22313073222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2233383134636633323965633065653237376137303566656338383535333263636363353139393162303037363230396331613931646236613333666161383564222c2273747265616d223a2273747265616d73222c22746f74616c223a6e756c6c2c22756e6974223a2273747265616d227d', '\xcc2de0fb61e72d7b5070e164b76c8b28e67b9f47947e3eadae9aff9a727ae3d8');
INSERT INTO {s}.journal VALUES ('streams', 1, 'setting', 0, 0, 0, 0, 'first window', '\x30', '\x6c0208831ef38f2902db702ad91d275c7a00ba8fc916c1482577962afba10b72');
INSERT INTO {s}.journal VALUES ('streams', 2, 'charge', 0, 10000, 1000000000, 1000000, 'stream', '\x', '\xebbd7fa902a0715508095279853202b6d34d1f78faf91f7c2e6a05c42a5b96c0');
INSERT INTO {s}.journal VALUES ('streams', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a2273747265616d73222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3437323039393530323438373536332c34392e30323634343737363131393430335d2c227369676d61223a5b302e3030343736393738373939323838383036392c302e30303935333831393032353730363839355d2c22636f756e74223a3230342c22636f72655f636f756e74223a3230312c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c22747261636b223a7b2263656e746572223a5b3437322c2d3438375d2c227369676d61223a342e3736393738373939323838383036392c227265616368223a3535312e3737373938353436333737352c226163726f7373223a3535312e3737373938353436333737352c227368617265223a6e756c6c2c226472696674223a66616c73657d2c227061727473223a7b227461696c5f7368617265223a302e3032393431313736343730353838323335337d2c22696e74657276616c223a5b5b32302e3436323735303731383032313530332c32302e3438313434383238363935333632325d2c5b34392e30303737353239303832393031372c34392e3034353134323631343039373838345d5d7d', '\xef5edc8a239643a7b9cb91b087d098c9108ab3367d4e5f3ca3cbb9df6ddaec25');
INSERT INTO {s}.journal VALUES ('streams', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\x95e04d49571c71acaea227c73981a3196a92c2eb8eaf40087750dfc7b0745ba8');
INSERT INTO {s}.journal VALUES ('streams', 5, 'charge', 10000, 20000, 1000000000, 100000, 'stream', '\x', '\x4912bad04b780343f4e2473379b3eebf4391bc9c21c994ebf339f2884cafe842');
INSERT INTO {s}.journal VALUES ('streams', 6, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a2273747265616d73222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3435373339313533343339313533332c34382e39383335333433393135333433395d2c227369676d61223a5b302e3030333438393138373131333830373734322c302e3030363938303639363531363731333734395d2c22636f756e74223a3139382c22636f72655f636f756e74223a3138392c2272686f223a312e302c2264656c7461223a31652d31302c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a312e31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c22747261636b223a7b2263656e746572223a5b3435372c2d3530385d2c227369676d61223a332e3439303334383235383335363837342c227265616368223a3535312e3737373938353436333737352c226163726f7373223a3535312e3737373938353436333737352c227368617265223a302e393534353435343534353435343534362c226472696674223a66616c73657d2c227061727473223a7b227461696c5f7368617265223a302e3034353435343534353435343534353435367d2c22696e74657276616c223a5b5b32302e34353035353237323736343834372c32302e3436343233303334313133343539355d2c5b34382e39363938353232323633363136332c34382e39393732313635353637303731355d5d7d', '\x6d46b0c3337e5dead47e2e3b477c6236032c0141d593b6e6a818aabe4ea956d5');
INSERT INTO {s}.journal VALUES ('streams', 7, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\x94b3efef93fe94ec7dd934e109403ca1fb2ba29aa9d4c4d7e6ef99064e7fd689');
INSERT INTO {s}.journal VALUES ('streams', 8, 'charge', 20000, 30000, 1000000000, 100000, 'stream', '\x', '\xec7f6df1c51e254e30c9b17143c81e12e416350c8f41d76cd54c983d08815452');
INSERT INTO {s}.journal VALUES ('streams', 9, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a2273747265616d73222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3531333039303432353533313931342c34382e3933333131373032313237363539345d2c227369676d61223a5b302e30303334393735353235303639303239392c302e30303639373034313338393535393836365d2c22636f756e74223a3230312c22636f72655f636f756e74223a3138382c2272686f223a312e302c2264656c7461223a31652d31302c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a332e302c2264656c7461223a312e32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c22747261636b223a7b2263656e746572223a5b3531332c2d3533335d2c227369676d61223a332e34393735353235303639303239392c227265616368223a3535312e3737373938353436333737352c226163726f7373223a3535312e3737373938353436333737352c227368617265223a302e393534353435343534353435343534362c226472696674223a66616c73657d2c227061727473223a7b227461696c5f7368617265223a302e30363436373636313639313534323238387d2c22696e74657276616c223a5b5b32302e3530363233353232323631383338332c32302e3531393934353632383434353434355d2c5b34382e39313934353530313030343132322c34382e39343637373930333235313139375d5d7d', '\x7d16dfcb0b4392c6f03cfece89be6f85a2b4885f644ce442b524b539d9e919f2');
INSERT INTO {s}.journal VALUES ('users', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b383030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a382e307d7d2c2273706563696669636174696f6e223a7b22627564676574223a7b22736176696e6773223a226576656e227d2c226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a3130307d2c2273747265616d223a7b226e616d65223a227573657273222c227065725f75736572223a226d65616e222c22756e6974223a2275736572222c2275736572223a226964227d2c2277696e646f77223a7b22656e64223a22313937302d30312d30315430303a30313a30305a222c226c656e677468223a22313073222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2233373930373065623639333163356338653534316238633432643036646137653665383264346638393865643063623639373634646538643231666134396132222c2273747265616d223a227573657273222c22746f74616c223a6e756c6c2c22756e6974223a2275736572227d', '\xeab2809686ff70d24c20573a547b379d24a371b14e02a040b0d632f19f22f5c6');
INSERT INTO {s}.journal VALUES ('users', 1, 'setting', 0, 0, 0, 0, 'first window', '\x30', '\xf0e1eb4cb4bb833e9797a2a98248bdf6c564b22b82b0899480ea794f18d7fd10');
INSERT INTO {s}.journal VALUES ('users', 2, 'charge', 0, 10000, 1000000000, 1000000, 'user', '\x79901c731e96ac5737f3997ac37740178c7afc1c1bda9393c89f8f7d7ae52f3c', '\x2823e15c529a421a1fa44385a6c143938342ae90e2559468fbc3cb4e9d2fdf17');
INSERT INTO {s}.journal VALUES ('users', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a227573657273222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e34353939363130333839363130342c34392e3031373530363439333530363439355d2c227369676d61223a5b302e3031323839363033353436363135383836352c302e3032353738373631373738333037353839385d2c22636f756e74223a3135362c22636f72655f636f756e74223a3135342c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a382e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e3035373639323330373639323330373639367d2c2270617274696369706174696f6e223a2266756c6c222c22696e74657276616c223a5b5b32302e34333436383438303934343733372c32302e3438353233373236383437343731325d2c5b34382e39363639363237363236353136372c34392e30363830353032323433363133325d5d7d', '\xa8dbe03f05eef9661c76be7f400795a29d66a5bb07253af792489f01ec656763');
INSERT INTO {s}.journal VALUES ('users', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\x8cfa4f6e16b79c662ae024d169f034d848a8c98b5870031e835354fe164309c5');
INSERT INTO {s}.journal VALUES ('users', 5, 'charge', 10000, 20000, 1000000000, 1000000, 'user', '\x160cd297075f45057d0f5d4d49876e76a033ed0de9fe7d42c4f70b265423eb40', '\xa4cd3a20ae335eb311d6297fbf8a244040549578431bb4cceed6d60dbe64f2f6');
INSERT INTO {s}.journal VALUES ('users', 6, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a227573657273222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3435343531333333333333333333352c34392e30303536393333333333333333335d2c227369676d61223a5b302e3030383331313735383536393832303139392c302e3031363538343333383133393234303536345d2c22636f756e74223a3135342c22636f72655f636f756e74223a3135302c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a382e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e3032353937343032353937343032353937367d2c2270617274696369706174696f6e223a2266756c6c222c22696e74657276616c223a5b5b32302e3433383232323238363533363438372c32302e3437303830343338303133303138335d2c5b34382e3937333138383033303538303432342c34392e30333831393836333630383632345d5d7d', '\xbc5eaa40e4dd895cc56a07cccd29396f68d6236991ec918dc31e4e12ee2f5dcf');
INSERT INTO {s}.journal VALUES ('users', 7, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\xebcf3f723572a7ac6ed05d92c50afb5c56b389222a8d2681507daa37020c9dd4');
INSERT INTO {s}.journal VALUES ('users', 8, 'charge', 20000, 30000, 1000000000, 1000000, 'user', '\x000cebc764448bc28433e7c9595bd5df38203951e356da511bbe8196046db85a', '\x8203eb5a50bd4bcd62829495788b4a4ae52cb7f978d80e9f1d5696d251e24374');
INSERT INTO {s}.journal VALUES ('users', 9, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a227573657273222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3531313638363636363636363636362c34382e393230365d2c227369676d61223a5b302e3030393334363032333738333337353339332c302e3031383639303439373430393933353637335d2c22636f756e74223a3134372c22636f72655f636f756e74223a3135302c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a382e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a332e302c2264656c7461223a33652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e307d2c2270617274696369706174696f6e223a2266756c6c222c22696e74657276616c223a5b5b32302e34393333363834363030353132352c32302e35333030303438373332383230385d2c5b34382e3838333936363632353037363532352c34382e3935373233333337343932333437365d5d7d', '\x31180f00e9f31995db361e59a29f9e0f4fbd6b7e8c01d1550b02e9ac8ae3f2eb');
INSERT INTO {s}.journal VALUES ('keyss/a', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b343030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a342e307d7d2c2273706563696669636174696f6e223a7b226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a39307d2c2273747265616d223a7b226b6579223a2273697465222c226e616d65223a226b65797373227d2c2277696e646f77223a7b226c656e677468223a22313073222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2232373734306633333763326661356239333335386439396564376565306164313465363536393366663138333938353736663163323034323332366465353739222c2273747265616d223a226b657973732f61222c22746f74616c223a6e756c6c2c22756e6974223a226576656e74227d', '\x776c032d779531100100b9876f376510cfd3c9aef2dd9e90edd46c58b129a49d');
INSERT INTO {s}.journal VALUES ('keyss/b', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b343030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a342e307d7d2c2273706563696669636174696f6e223a7b226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a39307d2c2273747265616d223a7b226b6579223a2273697465222c226e616d65223a226b65797373227d2c2277696e646f77223a7b226c656e677468223a22313073222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2232373734306633333763326661356239333335386439396564376565306164313465363536393366663138333938353736663163323034323332366465353739222c2273747265616d223a226b657973732f62222c22746f74616c223a6e756c6c2c22756e6974223a226576656e74227d', '\x6ade34fcdd73f5aa6d9ec5a7225aae37ad55c7fd827e1e22931fea58b1432059');
INSERT INTO {s}.journal VALUES ('keyss/a', 1, 'setting', 0, 0, 0, 0, 'first window of key a', '\x30', '\xd3afb5c75a64f19e1e0517c87c68c6a906bcbfb71f2461b6b26263aff6fd8b81');
INSERT INTO {s}.journal VALUES ('keyss/b', 1, 'setting', 0, 0, 0, 0, 'first window of key b', '\x30', '\x087d16f3587243a83ffb2b15bf0f6376b428230d5edf3f1549728c324b721e47');
INSERT INTO {s}.journal VALUES ('keyss/a', 2, 'charge', 0, 10000, 1000000000, 1000000, '0', '\x', '\xa0b4eef24184834125e9b4ee49f7465ac87ccbed82c57c481075eb1b02c941d7');
INSERT INTO {s}.journal VALUES ('keyss/b', 2, 'charge', 0, 10000, 1000000000, 1000000, '0', '\x', '\x3af7960e2233309dc66f0f5fa6b6862691f6e39b4b955dfcc1d24aafe67f5904');
INSERT INTO {s}.journal VALUES ('keyss/a', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a226b657973732f61222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3438353436333931373532353737342c34382e39383735363730313033303932385d2c227369676d61223a5b302e30313732353431303236373930373335382c302e30333436353431353439333236333335325d2c22636f756e74223a3130362c22636f72655f636f756e74223a39372c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e32323634313530393433333936323236357d2c226b6579223a2261222c22696e74657276616c223a5b5b32302e34353136343538373632373437392c32302e35313932383139353837373637365d2c5b34382e39313936343438363636343133312c34392e30353534383931353339373732345d5d7d', '\xbbebe660859a1ec155c95e662a57c5b875d1835e01c78cda74a167166e050536');
INSERT INTO {s}.journal VALUES ('keyss/b', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a226b657973732f62222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3436363730383333333333333333332c34382e393438353632355d2c227369676d61223a5b302e3032303839313630393434323632383239372c302e30343136343135333536383736383538395d2c22636f756e74223a3130342c22636f72655f636f756e74223a39362c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e30373639323330373639323330373639337d2c226b6579223a2262222c22696e74657276616c223a5b5b32302e3432353736303737383832353738332c32302e3530373635353838373834303838335d2c5b34382e3836363934353039303035323133342c34392e30333031373939303939343738375d5d7d', '\x6deaded3827da76103df1b0aefe36adb9cc3893cb6fcfaa3f94a9685bb264859');
INSERT INTO {s}.journal VALUES ('keyss/a', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\x539c11744896fc3b8bd1a9537d70802abec1f87d2cac9e626a622c80c3e20552');
INSERT INTO {s}.journal VALUES ('keyss/b', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\xa92e83f9e535d98c8ddcc253c1cb1ec8f62318d574751f21bd90e8a146d52bc1');
INSERT INTO {s}.journal VALUES ('keyss/a', 5, 'charge', 10000, 20000, 1000000000, 1000000, '10000', '\x', '\xa2de793de118328aa5257499100c7d5245777e417250dc0750ace2c7b81df7d7');
INSERT INTO {s}.journal VALUES ('keyss/b', 5, 'charge', 10000, 20000, 1000000000, 1000000, '10000', '\x', '\xf4b5c70281f875183725b51e57cbbb182d686b341d6685123439dcfa1cdd3da6');
INSERT INTO {s}.journal VALUES ('keyss/a', 6, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a226b657973732f61222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3434383133323635333036313232362c34392e30323630383136333236353330365d2c227369676d61223a5b302e3032313339323235333938363935333239372c302e30343333333537353336343030323232375d2c22636f756e74223a39392c22636f72655f636f756e74223a39382c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e3031303130313031303130313031303130327d2c226b6579223a2261222c22696e74657276616c223a5b5b32302e3430363230333833353234363739362c32302e3439303036313437303837353635365d2c5b34382e3934313134333535353531383631352c34392e3131313031393730393738373530365d5d7d', '\x705d3183e213b3eee7b4b522e089d4a62e378207344eb46f26e4f4d3b525ce39');
INSERT INTO {s}.journal VALUES ('keyss/b', 6, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a226b657973732f62222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e34343135373839343733363834322c34382e39303931353738393437333638345d2c227369676d61223a5b302e3031393630373932303330323534393231362c302e30333839363130303339313639323933345d2c22636f756e74223a3130322c22636f72655f636f756e74223a39352c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e30363836323734353039383033393231367d2c226b6579223a2262222c22696e74657276616c223a5b5b32302e3430333134373432333537353432322c32302e3438303031303437313136313431375d2c5b34382e38333237393433323730353936362c34382e39383535323134363234313430335d5d7d', '\x8cbcbd57917024e4eec7f268fa3a2630d0e91558599c0b3aa2934584f4bed2ae');
INSERT INTO {s}.journal VALUES ('keyss/a', 7, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\xdea8dff3abe222bd2f7007ab49759cec0d2a7c636787e3fe6f9755f3968b8e40');
INSERT INTO {s}.journal VALUES ('keyss/b', 7, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\xfd42287ee4b9aae468207c4951e4ee6e5351b0f64d962d92fac19c0ec0ced5d4');
INSERT INTO {s}.journal VALUES ('keyss/a', 8, 'charge', 20000, 30000, 1000000000, 1000000, '20000', '\x', '\xfa50e35eaeca4f39dd08917aa4c6ccea60323795c7f8c7a2aaf512b2ca93e932');
INSERT INTO {s}.journal VALUES ('keyss/b', 8, 'charge', 20000, 30000, 1000000000, 1000000, '20000', '\x', '\xac2529fdec4fd9c66bf255b3886e72b35d54d0b24f00dab3a3ee45a7632c922f');
INSERT INTO {s}.journal VALUES ('keyss/a', 9, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a226b657973732f61222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3530373239373032393730323937322c34392e3034333836313338363133383631365d2c227369676d61223a5b302e30313430343434383437363832333635312c302e3032383338393436383733313535323333345d2c22636f756e74223a3130302c22636f72655f636f756e74223a3130312c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e307d2c226b6579223a2261222c22696e74657276616c223a5b5b32302e34373937363938333935353732332c32302e3533343832343231393834383731365d2c5b34382e39383832313830323734323437372c34392e30393935303437343438353234365d5d7d', '\x782b63a84b59bd8fa3e2d11f3ce327085d433f44a1f26b81f917d1f7626dcb04');
INSERT INTO {s}.journal VALUES ('keyss/b', 9, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a226b657973732f62222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3438343037303730373037303730372c34382e3834353637363736373637363736345d2c227369676d61223a5b302e3032313635393538313135383231373530322c302e3034333634333930353534363234333737365d2c22636f756e74223a3130302c22636f72655f636f756e74223a39392c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c227061727473223a7b227461696c5f7368617265223a302e30317d2c226b6579223a2262222c22696e74657276616c223a5b5b32302e343431363137393238303030362c32302e3532363532333438363134303831345d2c5b34382e37363031333437313238303631332c34382e393331323138383232353437345d5d7d', '\x219c4cd36d78b0ab909e676415cf33955bb6733f78bb5601b88aa6f828ee80a3');
INSERT INTO {s}.meta VALUES ('schema', '4');
INSERT INTO {s}.settings VALUES ('events', 'first window', '0', 1001911846894139791);
INSERT INTO {s}.settings VALUES ('streams', 'first window', '0', 1001911846894139791);
INSERT INTO {s}.settings VALUES ('users', 'first window', '0', 1001911846894139791);
INSERT INTO {s}.settings VALUES ('keyss/a', 'first window of key a', '0', 4491938252297086);
INSERT INTO {s}.settings VALUES ('keyss/b', 'first window of key b', '0', 1011016689007659313);
INSERT INTO {s}.streams VALUES ('events', false, 4000000000, 1000000000, 30000000000, 1000000000, 0, '\x31439ea068570b52a010e7c1b13e50bc404368653ba70e552ab3a7606c63ff7a', 14, '\x2662d944755a6f38bf01018aa1871ab6efcaee128c4bbcb40a12e329042396eb', 408094824920459249, '\x0000000000000000000000000000000000000000000000000000000000000000', 1072725457770970687);
INSERT INTO {s}.streams VALUES ('streams', false, 4000000000, 1000000000, NULL, NULL, 0, '\x458823e42cbea7e56cce854ea993813ab0a6b07355e8a4b827cb1253db6c6198', 9, '\x7d16dfcb0b4392c6f03cfece89be6f85a2b4885f644ce442b524b539d9e919f2', 508598752223683551, '\x0000000000000000000000000000000000000000000000000000000000000000', 956846420552430551);
INSERT INTO {s}.streams VALUES ('users', false, 8000000000, 1000000000, NULL, NULL, 0, '\xf0a0e677566c3e1c548621024a853273b0d6e4d1a48189c7a17d4179453314b9', 9, '\x31180f00e9f31995db361e59a29f9e0f4fbd6b7e8c01d1550b02e9ac8ae3f2eb', 647620462876454241, '\x000cebc764448bc28433e7c9595bd5df38203951e356da511bbe8196046db85a', 483309286698814528);
INSERT INTO {s}.streams VALUES ('keyss/a', false, 4000000000, 1000000000, NULL, NULL, 0, '\x2461cb8a06b728bbae1c21cb2afac0f3382451f1aa5dadc37b0a1c78482c572d', 9, '\x782b63a84b59bd8fa3e2d11f3ce327085d433f44a1f26b81f917d1f7626dcb04', 1080667399142895424, '\x0000000000000000000000000000000000000000000000000000000000000000', 839130354643110116);
INSERT INTO {s}.streams VALUES ('keyss/b', false, 4000000000, 1000000000, NULL, NULL, 0, '\xb33a5a44454c433c75e890033db1aa7f8c1ac164ed00bbcb0b9b6e7a3b16cbfa', 9, '\x219c4cd36d78b0ab909e676415cf33955bb6733f78bb5601b88aa6f828ee80a3', 934270645291410675, '\x0000000000000000000000000000000000000000000000000000000000000000', 745005003202872056);
INSERT INTO {s}.users VALUES ('users', 79, '\x013f2dc53b56996d1f544a4dcc72ecc2005ed0b200000000c0c62d0000000000204e000000000000', '\x3b06a8f40889e325913ab11af456f08255722e8e022caf5567c2468edff107c4');
INSERT INTO {s}.users VALUES ('users', 183, '\x02ddb430fd2824213fcbd593f4b6b138005ed0b200000000c0c62d0000000000204e000000000000', '\x41bec0f84cdd075f56561edf91aa0e267797941d14878044e2a68e159761e768');
INSERT INTO {s}.users VALUES ('users', 393, '\x06273bc7f0c0d736f58709c4e81e66d3005ed0b200000000c0c62d0000000000204e000000000000', '\xde18b3d71d8b9b77cdb4309df9933f419ae5cf5a854ad030d82f3681a8ef93d8');
INSERT INTO {s}.users VALUES ('users', 491, '\x07acffdf215dd9f597d257fb35b448ff005ed0b200000000c0c62d0000000000204e000000000000', '\x642feb3e46b3629f61ab234ff614da415366e6cc91437b7de4552763ee14abe6');
INSERT INTO {s}.users VALUES ('users', 782, '\x0c3a22b555fdac2fdb493d3933a55dec005ed0b200000000c0c62d0000000000204e000000000000', '\x053ce53397035353c7d7596016156e6e1fb64e696849aa456fd9b67571a13d90');
INSERT INTO {s}.users VALUES ('users', 794, '\x0c6b92566dbf4b7ae01cf8e976151090005ed0b200000000c0c62d0000000000204e000000000000', '\x48566fd8586b42aa88da42876ed766815855f0bc2bb76793544ab3984bc0a0c3');
INSERT INTO {s}.users VALUES ('users', 859, '\x0d6e946490335200dc1d598962d0a837005ed0b200000000c0c62d0000000000204e000000000000', '\x5543932bac2258bb5f1890b8aa9ef8dd796744a1c04d153c0fef3d931a4d7383');
INSERT INTO {s}.users VALUES ('users', 1224, '\x1322765531c0a659c60855c4a1d4c616005ed0b200000000c0c62d0000000000204e000000000000', '\x5814bee77a6558bc17856ffb8a4fc59724cc72cf54464631005b53eb9ab514fd');
INSERT INTO {s}.users VALUES ('users', 1331, '\x14cfbcb1b7ed4a0156b3e2e5415fecbb005ed0b200000000c0c62d0000000000204e000000000000', '\x74fd98bd6c156f896ed09b591b56c8d439db8790df22dfbc2eddcd109664b525');
INSERT INTO {s}.users VALUES ('users', 1340, '\x14f379d6c1c50811048137a7776ee4e6005ed0b200000000c0c62d0000000000204e000000000000', '\x8478567bc2d9c667b8b82931cec2f86bd5d39dac1265aa9b7cb84feb41d51ce3');
INSERT INTO {s}.users VALUES ('users', 1345, '\x15052dca9fafc789368b372573a79e2f005ed0b200000000c0c62d0000000000204e000000000000', '\xe155f1ad05cfb0da32aec1fad95f7ed118009ab1b243207cc10fe11b59bfe477');
INSERT INTO {s}.users VALUES ('users', 1916, '\x1df09fadb3d9aeabc705b8f618516577005ed0b200000000c0c62d0000000000204e000000000000', '\x66d8783d90a0105d17bf6bcb20e9dcb20953eac07047cd271994673a6828907a');
INSERT INTO {s}.users VALUES ('users', 2017, '\x1f8705df1582b9ca52d7f3e6cf156d54005ed0b200000000c0c62d0000000000204e000000000000', '\x5dd8e04ef22a2eb1bc1ef2a35ac3198d1ed3e656c568d804635402778ad78415');
INSERT INTO {s}.users VALUES ('users', 2125, '\x21371d9f29f566ae7a06d0cca9635f6e005ed0b200000000c0c62d0000000000204e000000000000', '\xfcba730e466bc5d6d24f9ea0a00d181a1936543a6fe75fdbeb1979566bfc146e');
INSERT INTO {s}.users VALUES ('users', 2430, '\x25f8c72c5ca99aca909e776121751db7005ed0b200000000c0c62d0000000000204e000000000000', '\x33ddb1e5d26deab513378a48ca209f21f3a32f14ab380f5a53c2b30e2260e5a7');
INSERT INTO {s}.users VALUES ('users', 2455, '\x265c31afb6f45aafa8c6c11b056ad9ae005ed0b200000000c0c62d0000000000204e000000000000', '\xf21239ae45b5c135bd57b523445cfe5736dff2c8e1cf9d1f98e38b71680c03db');
INSERT INTO {s}.users VALUES ('users', 2456, '\x2660bb22321f2f6522db7b64dea0d916005ed0b200000000c0c62d0000000000204e000000000000', '\x87ebf71340576c2b1c025a7c2a7440ae66ea5bfa1282f9e9b6843b51ffdb8651');
INSERT INTO {s}.users VALUES ('users', 2467, '\x268c2a3f90b90c6b54f500718e3f7c73005ed0b200000000c0c62d0000000000204e000000000000', '\x4da39deac3be1957cd5ede263d36eb598a10a1ebccdc5061ace4e0cacf32f2ee');
INSERT INTO {s}.users VALUES ('users', 2662, '\x299a6b01fee92e47ae635a3470873b66005ed0b200000000c0c62d0000000000204e000000000000', '\xcbde0faf4c256e47e966ddbb848bfed3bb2f3891be5be56c9f9770da4fa1ba54');
INSERT INTO {s}.users VALUES ('users', 2706, '\x2a4a8dbaaf03242beb3649200cbf2160005ed0b200000000c0c62d0000000000204e000000000000', '\x6bbc44d7b31a34500df8091689e1df7f07b705b74be5b85f742605b92cc52f3a');
INSERT INTO {s}.users VALUES ('users', 2771, '\x2b4fcb9213f4efc14c5ff6036873a43a005ed0b200000000c0c62d0000000000204e000000000000', '\x58f966bc796f3c87cb5362372562cba2730e3a29b28fc4d4c990baeea477c13a');
INSERT INTO {s}.users VALUES ('users', 2895, '\x2d3e44341804584609db39be7dbc9722005ed0b200000000c0c62d0000000000204e000000000000', '\x361076c1e45e187d545e210fe606478ad4456d9b5a564902ea49110c91fd60d7');
INSERT INTO {s}.users VALUES ('users', 3092, '\x3053ee1268a051f2f00070e5b23f824c005ed0b200000000c0c62d0000000000204e000000000000', '\xf1eab6d921b945687d7a0fa317fc3b72a18f89c5bea0c0d12cdde900443be9cd');
INSERT INTO {s}.users VALUES ('users', 3371, '\x34ae848655362bd7b652b1e59391a3fb005ed0b200000000c0c62d0000000000204e000000000000', '\x6e68fe872b5ed97a35e8d8adf2331da21d5322c65380c216b33fd8481d304ed3');
INSERT INTO {s}.users VALUES ('users', 3559, '\x379c7a109e2c9b7b159f3ac0918907b9005ed0b200000000c0c62d0000000000204e000000000000', '\xabe9aae4f9d0865c29ec5b8543514ccc3ca1a6dcf8741c43edfec01b8224f963');
INSERT INTO {s}.users VALUES ('users', 3615, '\x387fa337cc6d995beadbbc13dd247a82005ed0b200000000c0c62d0000000000204e000000000000', '\x55822785ec5c82633f64938a9a023a9c2aa2fec471d03c16f419da41087b544c');
INSERT INTO {s}.users VALUES ('users', 3622, '\x389b137c6f2b597284d87939a4255130005ed0b200000000c0c62d0000000000204e000000000000', '\x8351875ec5c963634886f50f126222be49c1d933984e6204dec8cb678b3204a9');
INSERT INTO {s}.users VALUES ('users', 3795, '\x3b4c807679e9a8fbf82441efadc7c98a005ed0b200000000c0c62d0000000000204e000000000000', '\xf0b831e997b567abacd36775328cf774d623b8b800eb30bc667a877149550841');
INSERT INTO {s}.users VALUES ('users', 4210, '\x41c800a9209cf38bf0bf247633733ef3005ed0b200000000c0c62d0000000000204e000000000000', '\xe990ce225d0c17636640676541a4aec24ba3e336f6d25cab72377b417b93536d');
INSERT INTO {s}.users VALUES ('users', 4582, '\x4799f4e8942e2732c8fe3b9e1f0bd219005ed0b200000000c0c62d0000000000204e000000000000', '\x0d1f35fdd93644f63b18eb42e2d6b52651f7e2a140d6ae8391b1b07dce64e33e');
INSERT INTO {s}.users VALUES ('users', 4653, '\x48b6cee01d3dacd9248ea43ec23c6742005ed0b200000000c0c62d0000000000204e000000000000', '\xbabf36db1d99936abc3558ef050f721681dcae381326cf2b3fa77c241b16b652');
INSERT INTO {s}.users VALUES ('users', 4697, '\x4967c5d0cd7f25c7ff313fb877fb7cd4005ed0b200000000c0c62d0000000000204e000000000000', '\x27ab61d10ac09521ba255cd7b35c9156817c4dc0cf339cd6b31eb1adea13d906');
INSERT INTO {s}.users VALUES ('users', 4769, '\x4a87263160f8ba586cfb020f789d7ae0005ed0b200000000c0c62d0000000000204e000000000000', '\x00850b0ad3e6edc5b4fd965d8ce96a63d668b7229a3cd45945f5537443289ebc');
INSERT INTO {s}.users VALUES ('users', 4844, '\x4bb2c2cb26c15b4f019bc3f9c7959b99005ed0b200000000c0c62d0000000000204e000000000000', '\x060224bce43db602e1f74a4bce17f4aecd72ed296ce77e3d79d1e36c35e02098');
INSERT INTO {s}.users VALUES ('users', 4861, '\x4bf57a40ccba12425f7196dfcf0f628b005ed0b200000000c0c62d0000000000204e000000000000', '\x5e4d30c38965ddb9342f4b35b5384b7d7cce9a58f21f4070c17ff949dceac197');
INSERT INTO {s}.users VALUES ('users', 4917, '\x4cd4e7001ac49cc940c1b5c1fa36a139005ed0b200000000c0c62d0000000000204e000000000000', '\xa65c673c5cb2ab5fa9dc639be1e782d4b060654813844c09569aed57930b5786');
INSERT INTO {s}.users VALUES ('users', 5030, '\x4e99a3298f179832b81b65c9487afbec005ed0b200000000c0c62d0000000000204e000000000000', '\xd7e641cd38fcec84311982dfc27c08165e3f897fe987010de174ab391325ed3b');
INSERT INTO {s}.users VALUES ('users', 5123, '\x500ec1fbbcd8d23d3f250ff3a04c0087005ed0b200000000c0c62d0000000000204e000000000000', '\x07a4d1b3a2883bc5f0f863c3ff7d4284ae3685cfb6cc208bfb9a1b7631daea0b');
INSERT INTO {s}.users VALUES ('users', 5124, '\x50104d04438b3eab2a1892e5111640f0005ed0b200000000c0c62d0000000000204e000000000000', '\x7d1ee3d7c63360ddae166eced6e4cfac77dd5b048a320f366ada1bce0c4ee9c7');
INSERT INTO {s}.users VALUES ('users', 5152, '\x5083817dbe751f2e73c8dbaab5fad197005ed0b200000000c0c62d0000000000204e000000000000', '\x6fe1671d75a94b5e42bd08dc3db1baac6ef09cca1cd3cfd39c7d886a9b8a8a74');
INSERT INTO {s}.users VALUES ('users', 5256, '\x52221db2c059b7766e8f2a463ebb9c1a005ed0b200000000c0c62d0000000000204e000000000000', '\x140958888a64703348c88c6c517f56bc7764d792dbd76747e1776e7833feb058');
INSERT INTO {s}.users VALUES ('users', 5346, '\x538849459311d225e0fc7d5ac5e4a584005ed0b200000000c0c62d0000000000204e000000000000', '\xe935aa8ab19569d5c1f0ba7119085641abaa5148607bdc471bbff4c1b67c5cac');
INSERT INTO {s}.users VALUES ('users', 5416, '\x54a185eb49eefe628a4dd4d69aa32a3d005ed0b200000000c0c62d0000000000204e000000000000', '\xc99715ee25bf77f8220237c1abae193bae85019f86c6ed8834551060e2ac573c');
INSERT INTO {s}.users VALUES ('users', 5487, '\x55beeb6154c9923fbb3c8a4576a54996005ed0b200000000c0c62d0000000000204e000000000000', '\x3e54a802acd16a1577150b8a88dab3c7b63ea786fc55880db3e703d9f426bc26');
INSERT INTO {s}.users VALUES ('users', 5531, '\x566ee2ba806c898a52ecbb3e8471b3be005ed0b200000000c0c62d0000000000204e000000000000', '\xc8ec0033c2ece2d3f11f882f19319f63972106ca731f55d3fa0153896a19b49b');
INSERT INTO {s}.users VALUES ('users', 5644, '\x58335a760ef5402f2072e1e3764a04e7005ed0b200000000c0c62d0000000000204e000000000000', '\x059abc50a24c26346d19e470963c135f5e199fa6f5a556a85c36a50c288e723b');
INSERT INTO {s}.users VALUES ('users', 5698, '\x5909dfc6fe80dd9f0ec348d8ef9795ba005ed0b200000000c0c62d0000000000204e000000000000', '\xc22dd746f9b093751a846894476ca950f0881622e8c900c85c791175e6ec55a4');
INSERT INTO {s}.users VALUES ('users', 5814, '\x5ad9f5b36623e5d28f83201e59b7dee4005ed0b200000000c0c62d0000000000204e000000000000', '\x1d7fef78f8d0c5670d7abadd9682a91d8f3d3b58c7365fc7856eb47ee35f942d');
INSERT INTO {s}.users VALUES ('users', 5890, '\x5c08e42cfeee3517e03a0e827cf5b5e5005ed0b200000000c0c62d0000000000204e000000000000', '\x98afc7416da49783cf334a4bdbced9b186136ba6bc6a877ea4f7d270cee2c2c6');
INSERT INTO {s}.users VALUES ('users', 5981, '\x5d75862feba859a5adc932ae96531ff2005ed0b200000000c0c62d0000000000204e000000000000', '\x3a7522f4610ea6814ce93dade2298dc1be222ee2740c64cd6a592e7e1ca02cd1');
INSERT INTO {s}.users VALUES ('users', 5988, '\x5d91d50fb50817151311cd463afe4647005ed0b200000000c0c62d0000000000204e000000000000', '\x0f208c8752921ac3f4908877fa403e53d1713ef35708d68e92c542ee980acf9f');
INSERT INTO {s}.users VALUES ('users', 6032, '\x5e4343f9b3c00ce142b264902205e645005ed0b200000000c0c62d0000000000204e000000000000', '\x71279fe7664effbd1a2bf1659b3b22ef0e1b516fe26020cf3f8040120adfa371');
INSERT INTO {s}.users VALUES ('users', 6033, '\x5e477272ab59dad1bbf44a2c007f7f76005ed0b200000000c0c62d0000000000204e000000000000', '\x4d8bcf91d645facce340051bc323352da755b894285c4d7f864f76f0e4ae84f1');
INSERT INTO {s}.users VALUES ('users', 6059, '\x5eac84da43876151178bea92853eadfd005ed0b200000000c0c62d0000000000204e000000000000', '\x4eb192101d88e557b1571a59fbbb8460d1829c14d666f405fe2975b6fc5fa304');
INSERT INTO {s}.users VALUES ('users', 6126, '\x5fbbb6ba446bc7c83fb28822667534aa005ed0b200000000c0c62d0000000000204e000000000000', '\x00d2705711ac2b59659a1952001ee66e0c09a4d02a93ed8316d089080b4810a4');
INSERT INTO {s}.users VALUES ('users', 6573, '\x66b766ae300837d2a49b7344884a1ee7005ed0b200000000c0c62d0000000000204e000000000000', '\x2ee0dba4b9037618b94db0334aa3527120d3883db099a237f5b4e67b614866a5');
INSERT INTO {s}.users VALUES ('users', 6649, '\x67e71700884629b5df42cd98dfcfa0d6005ed0b200000000c0c62d0000000000204e000000000000', '\xdff3a1e37a952e1f2093e1e425f86b9440a55b27ff4fe0eb28cb39aed508162e');
INSERT INTO {s}.users VALUES ('users', 6670, '\x683ae07cd14d8b1afcb13cb344a1de9e005ed0b200000000c0c62d0000000000204e000000000000', '\x699cf73bec2bfb747f0f1e431a4a49fca908c0fafd11a144ef9cf15096bb5f7e');
INSERT INTO {s}.users VALUES ('users', 6678, '\x685a6eff78266c029b1a0c3559264c91005ed0b200000000c0c62d0000000000204e000000000000', '\x45d0d5fbe00e13137962951fad44ec166faa770aea7b4ca11a5d4ccf4a954d6a');
INSERT INTO {s}.users VALUES ('users', 6879, '\x6b7d78b3b51c684d970a203aee562812005ed0b200000000c0c62d0000000000204e000000000000', '\xc8fbeeee1044e5b75893da4592bcde1a24ed8ceb3430def283bfd1bac17eca09');
INSERT INTO {s}.users VALUES ('users', 6980, '\x6d1347b3b38d7defcc5045bd6c8072db005ed0b200000000c0c62d0000000000204e000000000000', '\xba3b69afd6d344a0eca96dec433b6e88c9a66f62fa165d132a0b7a4cb6651876');
INSERT INTO {s}.users VALUES ('users', 7189, '\x705727fe9f52919ff9f68cac5c6ec4f7005ed0b200000000c0c62d0000000000204e000000000000', '\xce7af12e0cae4504b78937ca0123adf6d1992fef50d5e44752d83e39ae5d83a6');
INSERT INTO {s}.users VALUES ('users', 7237, '\x7117c3d062ad8d67f6a57643d31b509c005ed0b200000000c0c62d0000000000204e000000000000', '\x703ce87b62318c691408206237430c0a957ea59d3d6155e2abe95d6f33452622');
INSERT INTO {s}.users VALUES ('users', 7477, '\x74d754fa0ad3049d002c4d481b494690005ed0b200000000c0c62d0000000000204e000000000000', '\xcb77b3315a3b9e4acfa7c52d3b57f67b0819113de93b2e3aa6c1dd9640e905ac');
INSERT INTO {s}.users VALUES ('users', 7527, '\x759f984e7599d71588ad56d86118a884005ed0b200000000c0c62d0000000000204e000000000000', '\x630a66177638e5d42d60219ce6f096529b4d4bebc0ceaa3b86cce98b48b82f2d');
INSERT INTO {s}.users VALUES ('users', 7619, '\x770d74ab00870ac4d514114d52fc2f7d005ed0b200000000c0c62d0000000000204e000000000000', '\x6a853436f169836a0c322e44267fdab5afeed3b0ece0207787c9fe27bf9c5504');
INSERT INTO {s}.users VALUES ('users', 7620, '\x77138df967c7131f310d47137dd253ed005ed0b200000000c0c62d0000000000204e000000000000', '\xc19158416f73a765f63079803b19808aeb46f780b6e635b0a3dceb0b406065f3');
INSERT INTO {s}.users VALUES ('users', 7674, '\x77e8e791a6f3354373e58ffda2288c18005ed0b200000000c0c62d0000000000204e000000000000', '\xb9226879cd503c850bd67d0494a879a03f7388ef382437bc88cc9164885b6409');
INSERT INTO {s}.users VALUES ('users', 7741, '\x78f68095e40dbc26bb8de37daf7d6624005ed0b200000000c0c62d0000000000204e000000000000', '\x82d88d950c8d8e9480aa97ebc5ea89589e31f7b0d7a4d03afba816231105c77c');
INSERT INTO {s}.users VALUES ('users', 7861, '\x7ad57caff41c7c859aab2fdcf7ffbd70005ed0b200000000c0c62d0000000000204e000000000000', '\x858c28dc995c105756aaba903108d31deaa472847d49a3bd7c9a5df7626763ff');
INSERT INTO {s}.users VALUES ('users', 8005, '\x7d1498b68e334732bbba5bddfa5e3af5005ed0b200000000c0c62d0000000000204e000000000000', '\x6d2b492a24681d22bb704c97bba4c08d20a9a068b61484383e39cf12ce748f80');
INSERT INTO {s}.users VALUES ('users', 8061, '\x7df569543e2907b93921b851d4b23321005ed0b200000000c0c62d0000000000204e000000000000', '\xaec33d4cf91aa3f5b1ebdc04853ded81f5558cfcf2e6a79fdd0dec627a01e6c0');
INSERT INTO {s}.users VALUES ('users', 8257, '\x81064843b932b308e3d764d94a41bac3005ed0b200000000c0c62d0000000000204e000000000000', '\x8f23a0b7de891d5c0faa65ad0a50ae0af0752906701fcd6742e0f346a13bb078');
INSERT INTO {s}.users VALUES ('users', 8340, '\x8251968811db2bc01d616a9323c437ee005ed0b200000000c0c62d0000000000204e000000000000', '\x7a4a6f54d993653e60d1f1bdd047025419178846f0c142dcf974aab6c681a3da');
INSERT INTO {s}.users VALUES ('users', 8446, '\x83f8f1e577769791c49409f4b2ccdff5005ed0b200000000c0c62d0000000000204e000000000000', '\x57087237f88dd2400ea71c0d40ae335449d3a41223c88edc38a2bd108cf97bf7');
INSERT INTO {s}.users VALUES ('users', 8712, '\x8822a8d5cbc864cb1e9bebe5a238b4fe005ed0b200000000c0c62d0000000000204e000000000000', '\x6f4adff86f90cf6a72fcd2b00f00bd21a9d2e35cc9018df2db3f7180e5173d68');
INSERT INTO {s}.users VALUES ('users', 8889, '\x8ae5961f03bafebbd3dd34f23c405c08005ed0b200000000c0c62d0000000000204e000000000000', '\xd43fe331a14fab17c0e0bbba22be9e954d9420eb1f9ee49b51e6e272d81c8221');
INSERT INTO {s}.users VALUES ('users', 8966, '\x8c18d25048e6ec40ce8bd2945a4cb84a005ed0b200000000c0c62d0000000000204e000000000000', '\xbc34fa33dc22763e5aac6a7f1bf33ae65ea9ef994b6ebf5c29480f1d33028883');
INSERT INTO {s}.users VALUES ('users', 9022, '\x8cf8f50d1b1a284d393418d051ba535e005ed0b200000000c0c62d0000000000204e000000000000', '\xd92cb1f83822af6a4b821b6eca28d0df6b14e2ee20ccd90a5f954f74b47aa32e');
INSERT INTO {s}.users VALUES ('users', 9024, '\x8d030b2f3aae8a87971eb42349ffec92005ed0b200000000c0c62d0000000000204e000000000000', '\x4c431396d7eb1a49475974cbd42f8c2aa2e8de773074f741de34967020cd26af');
INSERT INTO {s}.users VALUES ('users', 9097, '\x8e24b97c62a5955a6957b9761b3f7682005ed0b200000000c0c62d0000000000204e000000000000', '\x4c896f8e03fa1e52b5c609fe31939c3206194146bee5d4abdba179ccdc0e77f8');
INSERT INTO {s}.users VALUES ('users', 9110, '\x8e5b7bd0360aead00d8ecddf1db12d79005ed0b200000000c0c62d0000000000204e000000000000', '\x5aa1baa52ebde8dbebf9bacbb76e0e725c7aff08c237748bc1436b1d1ae1729e');
INSERT INTO {s}.users VALUES ('users', 9126, '\x8e9abd8b72da274672a84e3bf369882a005ed0b200000000c0c62d0000000000204e000000000000', '\x39d05c6b0497be94568e0cdd28bfe1dd5511e5fdc248ffe2f2efd50b11720d0f');
INSERT INTO {s}.users VALUES ('users', 9286, '\x911ba0725f50605111d163d5f2f49ec3005ed0b200000000c0c62d0000000000204e000000000000', '\xcf08aaac6512200f223a1014f58397bffcc401d69a183f9c3f47d1ce93a9a57c');
INSERT INTO {s}.users VALUES ('users', 9496, '\x9460b89fd541b464a7828f6ab6c0ad19005ed0b200000000c0c62d0000000000204e000000000000', '\x5cfcb46059919b39856b2dfbf79cc47c1ad61273d0328ccfe90382b60f657940');
INSERT INTO {s}.users VALUES ('users', 9542, '\x9518f79a5d5aea01248ea7ca8330ec0b005ed0b200000000c0c62d0000000000204e000000000000', '\xd62cb6f8cb36928da875518cecb2b9404664e4820cd070995eca6535e8440737');
INSERT INTO {s}.users VALUES ('users', 9557, '\x9557f496d12747994169c1d337681292005ed0b200000000c0c62d0000000000204e000000000000', '\x16e8ab36f275351509361113ba00af4fb4956366a6191dc9b001e93233af8290');
INSERT INTO {s}.users VALUES ('users', 9626, '\x966bb196e25a167038e467d49d800088005ed0b200000000c0c62d0000000000204e000000000000', '\xe24148fed6c74f7430dadaeab35d1c6551f2b1b67ca1505ce6068644e52a2058');
INSERT INTO {s}.users VALUES ('users', 9722, '\x97ebffef39301220640ba4706f42f923005ed0b200000000c0c62d0000000000204e000000000000', '\x0c4679d78793618f1ee01a25f199fb914755b37fd5e94f16c16cd04283fc225e');
INSERT INTO {s}.users VALUES ('users', 9739, '\x982f2a98ca8fa79920f32f28d9455df8005ed0b200000000c0c62d0000000000204e000000000000', '\x1a7d54c01d9d00f8b683fb78d0a33847045077c8b298c15355b2bcc71f5f971a');
INSERT INTO {s}.users VALUES ('users', 9755, '\x986de4b69cef02a85ed3a89bcfae9ec6005ed0b200000000c0c62d0000000000204e000000000000', '\xf6596e33372957d570469cb6a475571824c6ecae771830e1c96ea9d2262503cc');
INSERT INTO {s}.users VALUES ('users', 9863, '\x9a1ecf9030a036b3d8c58bcf900fbab5005ed0b200000000c0c62d0000000000204e000000000000', '\x900e2f80e2803cd396b5f2719a4efd6345b0fcb89dedf7a024a6515d9c4a8e38');
INSERT INTO {s}.users VALUES ('users', 9955, '\x9b8d6043fe5784b43281564e8ac6f3ca005ed0b200000000c0c62d0000000000204e000000000000', '\x2eaa4501da4649a7ad6c0a117c0837da83ff036eb2cf6634f9a062faa0fe5cdf');
INSERT INTO {s}.users VALUES ('users', 10136, '\x9e623197d670c867cc859777a1e6b85c005ed0b200000000c0c62d0000000000204e000000000000', '\xaa9bc81f1c63029636ab9deebca6683be002b3dd26d79c56d3444c408817acd6');
INSERT INTO {s}.users VALUES ('users', 10193, '\x9f445ee6626ffe6659421391da385e6a005ed0b200000000c0c62d0000000000204e000000000000', '\x45a7d70d8e97d9c9cb6533be241b9431b16d48b28706ef5be2425585d8dac5a0');
INSERT INTO {s}.users VALUES ('users', 10259, '\xa04d235385881c4103826d38b4d5e84a005ed0b200000000c0c62d0000000000204e000000000000', '\x02aeb6a2fb3863d2f21b86487ee4f980fb0507f73c9c9c7654dba73183baa716');
INSERT INTO {s}.users VALUES ('users', 10387, '\xa24dd1e0c52130e7b6683567e1fc7255005ed0b200000000c0c62d0000000000204e000000000000', '\x6776d9148132bf4f8109bf6e55edb38fbf9cfd2f193d05e3911baa2c6f5f02ec');
INSERT INTO {s}.users VALUES ('users', 10584, '\xa561a09a9b6a32f85273c5f2a0fb452b005ed0b200000000c0c62d0000000000204e000000000000', '\x3e8136a7978330875d616853fad93e9945e873bb2a023ed7fa66afa252495a0a');
INSERT INTO {s}.users VALUES ('users', 10683, '\xa6ef7662206948710d56af7f0e539384005ed0b200000000c0c62d0000000000204e000000000000', '\x78a684d5bc8752ce5ecf5fd6b539e3283884df44a88fa7a1489013f0a1d419c7');
INSERT INTO {s}.users VALUES ('users', 10688, '\xa70317f1ee05b2b97542e4e88020eeee005ed0b200000000c0c62d0000000000204e000000000000', '\xd2839fd48b0de7f5c05ad70829b0c29548d04c5271c8e63f60e179e620433ee3');
INSERT INTO {s}.users VALUES ('users', 10775, '\xa85c03d0a143da3e4f77cf4e4a0d3d46005ed0b200000000c0c62d0000000000204e000000000000', '\xf6e6a162594d374e2da6d71c509bb246719ec3d99e0f986096c1a43695130533');
INSERT INTO {s}.users VALUES ('users', 10938, '\xaaebb2d7c010a747fd5ec8f2f80e196a005ed0b200000000c0c62d0000000000204e000000000000', '\x93c576b4947cb0f753b54e939e545677f71d826eb133c03f410906bac22efe14');
INSERT INTO {s}.users VALUES ('users', 10940, '\xaaf04d9f3624e4e6e4cb2aeff9586aa4005ed0b200000000c0c62d0000000000204e000000000000', '\x6c0b8d0a8d10854686e2d87db752a92513989c81753457c64cae044a359fcba4');
INSERT INTO {s}.users VALUES ('users', 11149, '\xae3579e56871e5a6f066ef35a4133daf005ed0b200000000c0c62d0000000000204e000000000000', '\x0ac60507482544800854a5e82132e39fa15f7af2ebf6d1085dd908ee762983ff');
INSERT INTO {s}.users VALUES ('users', 11165, '\xae771d988b42ae2f7a0fefa4727d858a005ed0b200000000c0c62d0000000000204e000000000000', '\x91a15f9ef70f8f6c048320ca7c49e0423aae9f10cd91dff5a1604a38975f4fba');
INSERT INTO {s}.users VALUES ('users', 11186, '\xaec976a2b2f5e18168fbbc1cff8cbbe0005ed0b200000000c0c62d0000000000204e000000000000', '\xaf54e8e795575950d229fe62875c38661c6ec888349da7b10a835a6dce43714d');
INSERT INTO {s}.users VALUES ('users', 11188, '\xaed2d9127ffeac30280faa57ed54c1f5005ed0b200000000c0c62d0000000000204e000000000000', '\xecfbdcf24b66a31188420e2c53278710be79f17a2d381e2d21d2117ef10268b5');
INSERT INTO {s}.users VALUES ('users', 11229, '\xaf74db1351b739289b44001ba49baeb0005ed0b200000000c0c62d0000000000204e000000000000', '\x0ee330bf365acd053782411549ecb12884919805318b3e78c4f7b2f1e13b3383');
INSERT INTO {s}.users VALUES ('users', 11240, '\xafa3fe8949fd5ebb13a8c681392dc197005ed0b200000000c0c62d0000000000204e000000000000', '\xdd86cba1cdaa5672ad7bea6781e6406a94beae08f111f4a89227b216a977b8ee');
INSERT INTO {s}.users VALUES ('users', 11391, '\xb1ff22dd2930b653a93b39a6e0bea1a8005ed0b200000000c0c62d0000000000204e000000000000', '\x578610644f7909fa6e8429337b6531cfdf5e97297a50d9ce385155cbda2dcd00');
INSERT INTO {s}.users VALUES ('users', 11524, '\xb413c2969fb495ca9d6c65c9e46da0eb005ed0b200000000c0c62d0000000000204e000000000000', '\x1a92d316b5d065c86d4644609ef84157c22452f01d885aa401ef000e1c3c5237');
INSERT INTO {s}.users VALUES ('users', 11542, '\xb458eaa01b470fd32cab8dc06f31adf0005ed0b200000000c0c62d0000000000204e000000000000', '\x5bbd498ad741ba870b01ea54fd9ed9a09736da17e7332c513b26dac3ffc787c7');
INSERT INTO {s}.users VALUES ('users', 11592, '\xb523089d00000476b7827bc0f2a7fb97005ed0b200000000c0c62d0000000000204e000000000000', '\xee92d2536ec9b3dd401a55405950646b068d23e5fbc694450f6ca18b461d56c9');
INSERT INTO {s}.users VALUES ('users', 11766, '\xb7db9b05bde16b1757f00e4465cc0fc3005ed0b200000000c0c62d0000000000204e000000000000', '\x0dd25252c95797c67fa5ee0c1826878f5b01cec619b15c200c4af049e51817ad');
INSERT INTO {s}.users VALUES ('users', 11844, '\xb911583d173b87d430d331832f30d6e2005ed0b200000000c0c62d0000000000204e000000000000', '\x2e9014fd9675f17dc31313c2b26b9a0f996dc9f7cd22621eeef73f22a1348c6d');
INSERT INTO {s}.users VALUES ('users', 11978, '\xbb2b926341ca46bb9372b1a05c93afeb005ed0b200000000c0c62d0000000000204e000000000000', '\x69f21e00883f2c7ac5bf5fd60a9f2bf88eefbd99fa9c119f73a1df656e2c65f8');
INSERT INTO {s}.users VALUES ('users', 12016, '\xbbc31d58638db0d8ab138c9689b47a51005ed0b200000000c0c62d0000000000204e000000000000', '\xdb3c762b304b73468693de811c9269ad3565fd48ca12138fde5b372d7af9d072');
INSERT INTO {s}.users VALUES ('users', 12063, '\xbc7fcb27df04f828b4933020efdaf495005ed0b200000000c0c62d0000000000204e000000000000', '\x4cf6f3cef8ae9955d957be26c8fb9105e63be11fbcd38e9e2b482cf9466696c4');
INSERT INTO {s}.users VALUES ('users', 12071, '\xbc9e1de1ad64e12463e785ac74825080005ed0b200000000c0c62d0000000000204e000000000000', '\xf291ffe1846554165046f30c7db6296305648c99e4a1c8a848e3b45c2b16321c');
INSERT INTO {s}.users VALUES ('users', 12156, '\xbdf32b807f60e979b959699e5314b074005ed0b200000000c0c62d0000000000204e000000000000', '\x5901be08ff1ff0b005b57ed0e36e98bde380b95c1b2b49cda5173bdfb2e47072');
INSERT INTO {s}.users VALUES ('users', 12211, '\xbecef0af3c50eb6b151716417b752985005ed0b200000000c0c62d0000000000204e000000000000', '\x59f9e50ac5aefad1255dfed42417ba1d9d598b7b4ba5d35000e49f8af902c832');
INSERT INTO {s}.users VALUES ('users', 12217, '\xbee719912b144fac90bbb991d51cb9f0005ed0b200000000c0c62d0000000000204e000000000000', '\x24ee39b422052750af7d971574015f6a2bc382c70848a91e11ebd850a660b8e6');
INSERT INTO {s}.users VALUES ('users', 12264, '\xbfa1adf07be9c8f2b6223627bce38994005ed0b200000000c0c62d0000000000204e000000000000', '\xb64dcf0c938317553dcbea7a6dfc772810cf63e069eea42a3b0aef04d26ea84b');
INSERT INTO {s}.users VALUES ('users', 12270, '\xbfb99b1a65585767f8cdde6880701fe6005ed0b200000000c0c62d0000000000204e000000000000', '\xe0d0c5cb10d2bda7d11f514880e527b2b0102cb745203912b922faeb3e542032');
INSERT INTO {s}.users VALUES ('users', 12589, '\xc4b4fde2a66eac4224813e6b6a16de03005ed0b200000000c0c62d0000000000204e000000000000', '\x47c5e08c95cc05de7071df045db493289a60be7527a0baed6159948511ef4d54');
INSERT INTO {s}.users VALUES ('users', 12641, '\xc5852bac4807d2a4b6623caf3d985c78005ed0b200000000c0c62d0000000000204e000000000000', '\xa47f8e26d380aa047c2e69af3e0295db6f53ecf8ff8967a82d6fdb3b1cab9afb');
INSERT INTO {s}.users VALUES ('users', 12749, '\xc73575d59775aa420168312a2d5ce069005ed0b200000000c0c62d0000000000204e000000000000', '\x547bc45d8933064ba73426170f076f78a483cbcb55ca67730e3cf3dfaab3ed53');
INSERT INTO {s}.users VALUES ('users', 12769, '\xc7850894c180409f72983bb500438b65005ed0b200000000c0c62d0000000000204e000000000000', '\xc5415d92edd05396dbfdfc339bec3bc694b3ea4e5f324d095d5f4837b0d391a7');
INSERT INTO {s}.users VALUES ('users', 12857, '\xc8e662cdf7481f84502fd457c45ed98f005ed0b200000000c0c62d0000000000204e000000000000', '\x1da17c66a2cacf843a99feecd6b6ba4407e785216e0e56919c7e3e3cd9c35a86');
INSERT INTO {s}.users VALUES ('users', 12874, '\xc92ae4aee4a0301b2b08a72ad7822c8b005ed0b200000000c0c62d0000000000204e000000000000', '\x9215ac28717db55882be786e8a706a15b4ca0562151bd5194c6e8987b0fffef6');
INSERT INTO {s}.users VALUES ('users', 13024, '\xcb80517f3360f4faab74acd312646c4f005ed0b200000000c0c62d0000000000204e000000000000', '\xc72b483819a5cb132ec9b1b63a15d22c64bd71520fd6d2cfd02b884c49be5e12');
INSERT INTO {s}.users VALUES ('users', 13056, '\xcc036e6b6c026f8e0e90c85300041fc9005ed0b200000000c0c62d0000000000204e000000000000', '\x8cf9ac2de5c2d411fcc4e5d0c05541edca625e8db7bed270e7277ee5774067d7');
INSERT INTO {s}.users VALUES ('users', 13101, '\xccb6363ed824424d04eb8416307cb201005ed0b200000000c0c62d0000000000204e000000000000', '\x79eff2b35867498775c9aa175fdec0429badb808346f06ecf71955d29f6e92a3');
INSERT INTO {s}.users VALUES ('users', 13411, '\xd18e14a84c3d5bb1e2004651066c4e68005ed0b200000000c0c62d0000000000204e000000000000', '\xe61f20374e08580dd6f36613b337f00f67d430ae55ea6ee12748a427b8857696');
INSERT INTO {s}.users VALUES ('users', 13622, '\xd4d83d90ee15294a8d57c1e1c08c65b7005ed0b200000000c0c62d0000000000204e000000000000', '\xa33aa846428046e8e504811b74adddcd0253390027065c64bd4451807c997a03');
INSERT INTO {s}.users VALUES ('users', 13634, '\xd5082977a7e2be36f5773b2ba5b4a287005ed0b200000000c0c62d0000000000204e000000000000', '\xd0a9ac9b8c090ed3dc76ba3dc4536542ebfc3249a4ecc9392aca588f72d63253');
INSERT INTO {s}.users VALUES ('users', 14443, '\xe1af57c6acfbbe76d024d2541aa19255005ed0b200000000c0c62d0000000000204e000000000000', '\x8d6d8b59dac66016bcdaa0ff854500d9c237365bd2c656f8b27906085dd22442');
INSERT INTO {s}.users VALUES ('users', 14467, '\xe20f8e38a155311b0402306b59c8ed82005ed0b200000000c0c62d0000000000204e000000000000', '\x11ff84e11822b9693db87a82e28f370ae14998fd481665ecd18517f2b0e8e2a8');
INSERT INTO {s}.users VALUES ('users', 14634, '\xe4a8a49a49286be416c1835e85dd23d8005ed0b200000000c0c62d0000000000204e000000000000', '\xa4e97030ef35fde3e167f813e2004791d2eb9b26168941446e1e9235491bc287');
INSERT INTO {s}.users VALUES ('users', 14971, '\xe9efbbfaa4598b7396a2cd3feec068ab005ed0b200000000c0c62d0000000000204e000000000000', '\xf506e7ab7bb0815679b675078c70f21fba4ff700de7b834b99c25454b0b056e3');
INSERT INTO {s}.users VALUES ('users', 15093, '\xebd74b33ca6ccb3a61b1dce6380336ba005ed0b200000000c0c62d0000000000204e000000000000', '\x19b257b4372da488656dafc48e6b84584b217e336289e8f98cd842e437d03d34');
INSERT INTO {s}.users VALUES ('users', 15474, '\xf1c9d1442470c4756404d29e9d124a00005ed0b200000000c0c62d0000000000204e000000000000', '\xe849a104276395454e677474eadb91d23c8c41da8600ed358c4d8f5414e274c9');
INSERT INTO {s}.users VALUES ('users', 15537, '\xf2c5e76a2299fa66a891e23b69f2b700005ed0b200000000c0c62d0000000000204e000000000000', '\xbb0908f369e4c67263353bf8ebc6106b1afaf253fbd043b3999364aa0ee8b511');
INSERT INTO {s}.users VALUES ('users', 15783, '\xf69cb48467ec3048942e272b363f185d005ed0b200000000c0c62d0000000000204e000000000000', '\xe2d70aaede63cd2d26e34933d0212bed14c47329a787ec7fe0e18a89c0b0f91e');
INSERT INTO {s}.users VALUES ('users', 15813, '\xf714509f5e447b681ef0b2bed06c45bd005ed0b200000000c0c62d0000000000204e000000000000', '\xd44ae5483a2d53054caa6589eefe65456482c53ec622427c3b8b9e53a14599fb');
INSERT INTO {s}.users VALUES ('users', 15853, '\xf7b4f20cb94aecf3dfae6447e97151bb005ed0b200000000c0c62d0000000000204e000000000000', '\xe5f067603a2f5d9c5dfe448fb5be8f110d8bff116ed1f79c43041b0cccf1355f');
INSERT INTO {s}.users VALUES ('users', 15973, '\xf9976c3a2aced19bd68a1480ad2c3b34005ed0b200000000c0c62d0000000000204e000000000000', '\x7df6765de86e285e4a28c73263c483c297ca597e799656684d2dcfedf7d48e57');
INSERT INTO {s}.users VALUES ('users', 16132, '\xfc12b9083e45ef80106f5c60f0c66d61005ed0b200000000c0c62d0000000000204e000000000000', '\x996be412e59935fe35f13f3df69ed3f3bbe656630c8544aad7f1bc941b4ef401');
INSERT INTO {s}.users VALUES ('users', 16365, '\xffb548226c5da2ebc713a8d90729c5b7005ed0b200000000c0c62d0000000000204e000000000000', '\x1085f710e80fe8984f78e3a53e9ead6302195109b7def9c0d352159a10daa3ab');
INSERT INTO {s}.users VALUES ('users', 16379, '\xffedf192ddf2575ced505faf2cb9d269005ed0b200000000c0c62d0000000000204e000000000000', '\x417fbda6f2ab3e4f6fd1af3a7061822b0adf16a5859e1cffef40101719d34f14');
INSERT INTO {s}.windows VALUES ('events', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, '0,5000,total', 3, '\xaa360e672d1d9934166511c1e7705fe9000000000000000200000001', 663619164433964699);
INSERT INTO {s}.windows VALUES ('events', 5000, 15000, 'acknowledged', 1, 1000000000, 1000000, '5000,10000,total', 6, '\xaa360e672d1d9934166511c1e7705fe9000000000000000400000001', 1045386144033354115);
INSERT INTO {s}.windows VALUES ('events', 10000, 20000, 'acknowledged', 1, 1000000000, 1000000, '10000,15000,total', 8, '\xaa360e672d1d9934166511c1e7705fe9000000000000000600000001', 33913963018140782);
INSERT INTO {s}.windows VALUES ('events', 15000, 25000, 'sealed', 1, 1000000000, 1000000, '15000,20000,total', 12, '\xaa360e672d1d9934166511c1e7705fe9000000000000000800000001', 581768186847846348);
INSERT INTO {s}.windows VALUES ('events', 20000, 30000, 'sealed', 1, 1000000000, 1000000, '20000,25000,total', 14, '\xaa360e672d1d9934166511c1e7705fe9000000000000000a00000001', 647955231704257294);
INSERT INTO {s}.windows VALUES ('streams', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, 'stream', 3, '\x5c4a9afbf9f19a52b532405e3309824e000000000000000200000001', 50489755526795448);
INSERT INTO {s}.windows VALUES ('streams', 10000, 20000, 'acknowledged', 1, 1000000000, 100000, 'stream', 6, '\x5c4a9afbf9f19a52b532405e3309824e000000000000000400000001', 976424648241010271);
INSERT INTO {s}.windows VALUES ('streams', 20000, 30000, 'sealed', 1, 1000000000, 100000, 'stream', 9, '\x5c4a9afbf9f19a52b532405e3309824e000000000000000600000001', 966965620782296804);
INSERT INTO {s}.windows VALUES ('users', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, 'user', 3, '\x28ed5e33a632384187dc5e6d225224bd000000000000000200000001', 730067751824508157);
INSERT INTO {s}.windows VALUES ('users', 10000, 20000, 'acknowledged', 1, 1000000000, 1000000, 'user', 6, '\x28ed5e33a632384187dc5e6d225224bd000000000000000400000001', 934054933092714213);
INSERT INTO {s}.windows VALUES ('users', 20000, 30000, 'sealed', 1, 1000000000, 1000000, 'user', 9, '\x28ed5e33a632384187dc5e6d225224bd000000000000000600000001', 1102764276694407125);
INSERT INTO {s}.windows VALUES ('keyss/a', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, '0', 3, '\x766b03748f092ab74ba47cdf1c843375000000000000000200000001', 614777613373776096);
INSERT INTO {s}.windows VALUES ('keyss/b', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, '0', 3, '\x766b03748f092ab74ba47cdf1c843375000000000000000200000001', 614777613373776096);
INSERT INTO {s}.windows VALUES ('keyss/a', 10000, 20000, 'acknowledged', 1, 1000000000, 1000000, '10000', 6, '\x766b03748f092ab74ba47cdf1c843375000000000000000400000001', 986343045955276703);
INSERT INTO {s}.windows VALUES ('keyss/b', 10000, 20000, 'acknowledged', 1, 1000000000, 1000000, '10000', 6, '\x766b03748f092ab74ba47cdf1c843375000000000000000400000001', 986343045955276703);
INSERT INTO {s}.windows VALUES ('keyss/a', 20000, 30000, 'sealed', 1, 1000000000, 1000000, '20000', 9, '\x766b03748f092ab74ba47cdf1c843375000000000000000600000001', 780350199311338181);
INSERT INTO {s}.windows VALUES ('keyss/b', 20000, 30000, 'sealed', 1, 1000000000, 1000000, '20000', 9, '\x766b03748f092ab74ba47cdf1c843375000000000000000600000001', 780350199311338181);
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
