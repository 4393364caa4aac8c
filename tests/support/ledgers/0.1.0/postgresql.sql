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
INSERT INTO {s}.journal VALUES ('events', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b343030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a342e302c22746f74616c5f64656c7461223a31652d30362c22746f74616c5f72686f223a33302e307d7d2c2273706563696669636174696f6e223a7b226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a3330307d2c2273747265616d223a7b226e616d65223a226576656e7473227d2c2277696e646f77223a7b226c656e677468223a22313073222c22736c696465223a223573222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2236646262386566623461323962363234366262623932626439323633343534333135353539326437626366373965333232343938396661393636343132376262222c2273747265616d223a226576656e7473222c22746f74616c223a5b33303030303030303030302c313030303030303030305d2c22756e6974223a226576656e74227d', '\x15fc247697013719056dc58a9151c184476622d6ea86f6f02f60fefff6fa869e');
INSERT INTO {s}.journal VALUES ('events', 1, 'setting', 0, 0, 0, 0, 'first window', '\x30', '\xbe7bbfae0e1273909cee562e0be4e8a032b30af5eb687bc9f963d914683e674f');
INSERT INTO {s}.journal VALUES ('events', 2, 'charge', 0, 10000, 1000000000, 1000000, '0,5000,total', '\x', '\xf2e71d63f229a91e9a3c2400383888184c1f2d2f3215e13e9244ba2a1eaa918f');
INSERT INTO {s}.journal VALUES ('events', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3437313335333239333431333137332c34392e3031313538303833383332333335345d2c227369676d61223a5b302e303033363238383330313934363034383033362c302e3030373136383530333037383139393134375d2c22636f756e74223a3139362c22636f72655f636f756e74223a3136372c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d7d', '\x377ff65478e805c3b3a21bcdf703323e40865a35ea30eb382ef1335d92924bfe');
INSERT INTO {s}.journal VALUES ('events', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\xbb8d4920803b64774c6b635fe62028e818bcd09db3fc209b5a4101e73ea6a50b');
INSERT INTO {s}.journal VALUES ('events', 5, 'charge', 5000, 15000, 1000000000, 1000000, '5000,10000,total', '\x', '\xeea4f031311c3528a3e35f4d3befa771f5cf789717a8fedad29b33b21c50790e');
INSERT INTO {s}.journal VALUES ('events', 6, 'seal', 5000, 15000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a353030302c2277696e646f775f636c6f73655f6d73223a31353030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e34383636333837303936373734322c34382e39333235303332323538303634355d2c227369676d61223a5b302e3030373531303833313032393134393036382c302e3031343838363637383636383933363232385d2c22636f756e74223a3230352c22636f72655f636f756e74223a3135352c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d7d', '\x1aefcf380d958acd5d1ac27ccb48281e278569405ca3e952bf10a4c37a38588f');
INSERT INTO {s}.journal VALUES ('events', 7, 'charge', 10000, 20000, 1000000000, 1000000, '10000,15000,total', '\x', '\x7ed4be07b56d091a90e14f1f8ccedb864ce21770ce8a17984b39d91e3bf9e3c4');
INSERT INTO {s}.journal VALUES ('events', 8, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e34353238383132352c34392e303131383837355d2c227369676d61223a5b302e3031343232353034353530393939383833322c302e3032383435333538353535393131303238325d2c22636f756e74223a3230372c22636f72655f636f756e74223a3136302c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d7d', '\x4d58a593148107f86e80ad75f5ba63e635143476c92f26897e277f41c0e72ec0');
INSERT INTO {s}.journal VALUES ('events', 9, 'acknowledge', 5000, 15000, 0, 0, '', '\x', '\xb3b22cb80a7c6834c89b952cce64c515e31bc77e86a48ee6dc1da92080be4e3e');
INSERT INTO {s}.journal VALUES ('events', 10, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\xfd884b7a8651f59758b33653a530bddca9414fa66252af0e93d859f13c4a876d');
INSERT INTO {s}.journal VALUES ('events', 11, 'charge', 15000, 25000, 1000000000, 1000000, '15000,20000,total', '\x', '\x6b3f06eaba92ef6b8342a779bc725bf0b7c278de901bff14eb30c5c3eb7bc2df');
INSERT INTO {s}.journal VALUES ('events', 12, 'seal', 15000, 25000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a31353030302c2277696e646f775f636c6f73655f6d73223a32353030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3439343830313234323233363032362c34382e3934393231373339313330343334345d2c227369676d61223a5b302e3030363137393335343033363238363039362c302e3031323335303631393437353636383434325d2c22636f756e74223a3139392c22636f72655f636f756e74223a3136312c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d7d', '\xcdd6097526571f30848e3c38bf523c0bde2773f66ea4801fba88d46b2a1d6df1');
INSERT INTO {s}.journal VALUES ('events', 13, 'charge', 20000, 30000, 1000000000, 1000000, '20000,25000,total', '\x', '\x703a54c43cc63f95d5ccd1229ee7e0d02d0775cd8c96954bb1919efc2aff7a23');
INSERT INTO {s}.journal VALUES ('events', 14, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a226576656e7473222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3534383132333435363739303132332c34382e39303336313732383339353036325d2c227369676d61223a5b302e3030333532353035333631373036353833332c302e303037313037353735363038353637323134355d2c22636f756e74223a3230312c22636f72655f636f756e74223a3136322c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d7d', '\xe890b8a4c6cb8a554817602a4746aa5d234938d750dbabaaa79fb3fd51b221af');
INSERT INTO {s}.journal VALUES ('streams', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b343030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a342e307d7d2c2273706563696669636174696f6e223a7b226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c226d6574686f64223a22747261636b696e67222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a3135307d2c2273747265616d223a7b226e616d65223a2273747265616d73222c22756e6974223a2273747265616d227d2c2277696e646f77223a7b226c656e677468223a22313073222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2233383134636633323965633065653237376137303566656338383535333263636363353139393162303037363230396331613931646236613333666161383564222c2273747265616d223a2273747265616d73222c22746f74616c223a6e756c6c2c22756e6974223a2273747265616d227d', '\x22a9c8b44cc903e785bb02ed2625293acdf468c5857401027294db8c302db211');
INSERT INTO {s}.journal VALUES ('streams', 1, 'setting', 0, 0, 0, 0, 'first window', '\x30', '\xe914544a1bf445ff72c196ad8f8d96c654ea3dc695d5190890000e6b27184ba2');
INSERT INTO {s}.journal VALUES ('streams', 2, 'charge', 0, 10000, 1000000000, 1000000, 'stream', '\x', '\xf6e66ed471f5651dfdcaa1f13a582d6233a8e9fa5edc8da3ac3b8da1807317a8');
INSERT INTO {s}.journal VALUES ('streams', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a2273747265616d73222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3437363330333438323538373036332c34392e30323535343232383835353732315d2c227369676d61223a5b302e303033333532373838393432343933332c302e3030363731353130353830313839373833325d2c22636f756e74223a3230342c22636f72655f636f756e74223a3230312c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c22747261636b223a7b2263656e746572223a5b3437362c2d3438375d2c227369676d61223a332e3335373535323930303934383931362c227265616368223a3332382e31373939383331313635313939362c226163726f7373223a3332382e31373939383331313635313939362c227368617265223a6e756c6c2c226472696674223a66616c73657d7d', '\x75aa83a54eedf9573aa305dfc99a0ead143e2368155bc3e33eac3ed7bac99a53');
INSERT INTO {s}.journal VALUES ('streams', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\x28ae9da8ad9ffc53bdd555b74a273fc1a3651d80120d315409ed42dd6c866d9e');
INSERT INTO {s}.journal VALUES ('streams', 5, 'charge', 10000, 20000, 1000000000, 100000, 'stream', '\x', '\x1bfe151d578652bfd58abbe3d32b80eb6c9bbc0d25f94644de2eb0014a28a31c');
INSERT INTO {s}.journal VALUES ('streams', 6, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a2273747265616d73222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e34363232383138373931393436332c34392e30323737353833383932363137345d2c227369676d61223a5b302e303032363530343533313036303134353530352c302e3030353239373032313332323237313237355d2c22636f756e74223a3139382c22636f72655f636f756e74223a3134392c2272686f223a312e302c2264656c7461223a31652d31302c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a312e31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c22747261636b223a7b2263656e746572223a5b3436322c2d3438365d2c227369676d61223a322e363530343533313036303134353530362c227265616368223a3332382e31373939383331313635313939362c226163726f7373223a3332382e31373939383331313635313939362c227368617265223a302e373532353235323532353235323532352c226472696674223a66616c73657d7d', '\xb5f3a4e4bb31abb3161e14689adc1d532f3efffa39eb6943a5008da4e8bde326');
INSERT INTO {s}.journal VALUES ('streams', 7, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\x9e6e0e6824c89c32c8088c47fe0833a80be6f8b7aad797f13634a6cc6e993ef3');
INSERT INTO {s}.journal VALUES ('streams', 8, 'charge', 20000, 30000, 1000000000, 100000, 'stream', '\x', '\xdc801cb0b6472c78de040ab210b1d7d12d4db6eaa41acb20d2f6f04e2733ce60');
INSERT INTO {s}.journal VALUES ('streams', 9, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a2273747265616d73222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3531343036353034303635303430382c34382e3936303134363334313436333431345d2c227369676d61223a5b302e3030333231393830383231313132333137322c302e303036343030343536323436323937363632355d2c22636f756e74223a3230312c22636f72655f636f756e74223a3132332c2272686f223a312e302c2264656c7461223a31652d31302c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a332e302c2264656c7461223a312e32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c22747261636b223a7b2263656e746572223a5b3531342c2d3532305d2c227369676d61223a332e3231393830383231313132333137322c227265616368223a3332382e31373939383331313635313939362c226163726f7373223a3332382e31373939383331313635313939362c227368617265223a302e373532353235323532353235323532352c226472696674223a66616c73657d7d', '\x48ab15a3e148f4b09fc00668a3518af5863bca44f856cb0e0d61f33f5c29b980');
INSERT INTO {s}.journal VALUES ('users', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b383030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a382e307d7d2c2273706563696669636174696f6e223a7b22627564676574223a7b22736176696e6773223a226576656e227d2c226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a3130307d2c2273747265616d223a7b226e616d65223a227573657273222c227065725f75736572223a226d65616e222c22756e6974223a2275736572222c2275736572223a226964227d2c2277696e646f77223a7b22656e64223a22313937302d30312d30315430303a30313a30305a222c226c656e677468223a22313073222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2233373930373065623639333163356338653534316238633432643036646137653665383264346638393865643063623639373634646538643231666134396132222c2273747265616d223a227573657273222c22746f74616c223a6e756c6c2c22756e6974223a2275736572227d', '\x1e421663eda4ee78d2a5381e15f0a5a789dcabca5e48605e93c84f88aefdbc5e');
INSERT INTO {s}.journal VALUES ('users', 1, 'setting', 0, 0, 0, 0, 'first window', '\x30', '\x949191e98af95faa8b06bb63abe1a79cb1c6f4c4bca131f277242daaf54f8a78');
INSERT INTO {s}.journal VALUES ('users', 2, 'charge', 0, 10000, 1000000000, 1000000, 'user', '\x933e06a2414f55eb0fd0ecd25b6945f4272f2d250ea596dbceb750096d1f74ad', '\x8cf155bafcfeae8c14d1e9aad691f5b105ad3057e8c1455387d3b4df912874b9');
INSERT INTO {s}.journal VALUES ('users', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a227573657273222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3436303831383138313831383138332c34392e30313136333633363336333633365d2c227369676d61223a5b302e3031333434373735313336333535343830322c302e3032373033383237303832343239373735355d2c22636f756e74223a3135362c22636f72655f636f756e74223a3135342c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a382e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c2270617274696369706174696f6e223a2266756c6c227d', '\xfeb9c310003654ab98f18bf858781effe5ef5720ad60a4e39b18aaca4df0af62');
INSERT INTO {s}.journal VALUES ('users', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\xfe834e2998db3130f548b9bb851072dbc007dcb17c1c00a4a78d68a25c0aa625');
INSERT INTO {s}.journal VALUES ('users', 5, 'charge', 10000, 20000, 1000000000, 1000000, 'user', '\x067bb7963619f23c063dd4d72e21d3b34597ecfa29479920ce901265042c644b', '\x5fad225bbb12432b6376b6ad461e34725028f324224931b8cbc886ba1760ae8f');
INSERT INTO {s}.journal VALUES ('users', 6, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a227573657273222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3434333735333333333333333333332c34382e39393933303636363636363636375d2c227369676d61223a5b302e3030353330383233393136363530323231322c302e3031303630313434313431363834363039395d2c22636f756e74223a3135342c22636f72655f636f756e74223a3135302c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a382e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a322e302c2264656c7461223a32652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c2270617274696369706174696f6e223a2266756c6c227d', '\x7e7e9625616de69e1805c10d7d33eda0e8b57539822cd09ea1e0dd7bd9299893');
INSERT INTO {s}.journal VALUES ('users', 7, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\xffc2a33064c53b0de1ab4cbc6ce21449098f25d086fb7d220881aeadd2f00871');
INSERT INTO {s}.journal VALUES ('users', 8, 'charge', 20000, 30000, 1000000000, 1000000, 'user', '\xc40b26cb98a6094875e3ceb8e604678a2801249bb729d7ad42e8c9380d514689', '\x8a5d54a90b81b09b0a8d398498d774767ff97947b5b05645bd4118b980b38e20');
INSERT INTO {s}.journal VALUES ('users', 9, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a227573657273222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3531323033333333333333333333352c34382e39313833365d2c227369676d61223a5b302e3030383137383630363331343534303036362c302e303136333436323630373233383539365d2c22636f756e74223a3134372c22636f72655f636f756e74223a3135302c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a382e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a332e302c2264656c7461223a33652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c2270617274696369706174696f6e223a2266756c6c227d', '\x02fc274b21363725c38d34f9c78352fc044f36800589310c1b3e06814801e303');
INSERT INTO {s}.journal VALUES ('keyss/a', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b343030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a342e307d7d2c2273706563696669636174696f6e223a7b226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a39307d2c2273747265616d223a7b226b6579223a2273697465222c226e616d65223a226b65797373227d2c2277696e646f77223a7b226c656e677468223a22313073222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2232373734306633333763326661356239333335386439396564376565306164313465363536393366663138333938353736663163323034323332366465353739222c2273747265616d223a226b657973732f61222c22746f74616c223a6e756c6c2c22756e6974223a226576656e74227d', '\xd8864f855ffbdd907dad5c3c8000035c819d0ef0453c18a6ceabfce42ef73b18');
INSERT INTO {s}.journal VALUES ('keyss/b', 0, 'terms', 0, 0, 0, 0, '', '\x7b226361706163697479223a5b343030303030303030302c313030303030303030305d2c2270726f6d697365223a7b22627564676574223a7b2264656c7461223a31652d30362c2272686f223a342e307d7d2c2273706563696669636174696f6e223a7b226665617475726573223a5b7b226d6178223a38302e302c226d696e223a2d34302e302c226e616d65223a2261222c226f726967696e223a32302e307d2c7b226d6178223a3130302e302c226d696e223a302e302c226e616d65223a2262222c226f726967696e223a35302e302c227363616c65223a322e307d5d2c226c617474696365223a7b2273746570223a302e3030317d2c2272656c65617365223a7b2264656c7461223a31652d30392c226b696e64223a226d65616e222c22726164697573223a332e302c2272686f223a312e302c2273697a655f68696e74223a39307d2c2273747265616d223a7b226b6579223a2273697465222c226e616d65223a226b65797373227d2c2277696e646f77223a7b226c656e677468223a22313073222c227374617274223a22313937302d30312d30315430303a30303a30305a227d7d2c2273706563696669636174696f6e5f68617368223a2232373734306633333763326661356239333335386439396564376565306164313465363536393366663138333938353736663163323034323332366465353739222c2273747265616d223a226b657973732f62222c22746f74616c223a6e756c6c2c22756e6974223a226576656e74227d', '\x14d92d4a7de1a369918220221462ae7bf2b5ab241f2e484e3dfd138ad74d6192');
INSERT INTO {s}.journal VALUES ('keyss/a', 1, 'setting', 0, 0, 0, 0, 'first window of key a', '\x30', '\x974b2143f1bb5d5c841fc469f1ab34130f0ceaf7a48e5078ba2d8e2541ae895d');
INSERT INTO {s}.journal VALUES ('keyss/b', 1, 'setting', 0, 0, 0, 0, 'first window of key b', '\x30', '\x757a0c161cbece77544ca5361ff595992d2e25481885466065632fce6214502f');
INSERT INTO {s}.journal VALUES ('keyss/a', 2, 'charge', 0, 10000, 1000000000, 1000000, '0', '\x', '\x871cb2655206ae50cbdebfcf5f7344a3dbd3301a59c7fa50400593ef9c802acc');
INSERT INTO {s}.journal VALUES ('keyss/a', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a226b657973732f61222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3439373438343533363038323437342c34392e30303437363238383635393739345d2c227369676d61223a5b302e30303930343035383837313633393730372c302e30313833383838353536323432393838395d2c22636f756e74223a3130362c22636f72655f636f756e74223a39372c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c226b6579223a2261227d', '\x4b18b0acab76404099b667e6fbc4dd8eda57ef2c3022168420f55f2a58d8436e');
INSERT INTO {s}.journal VALUES ('keyss/b', 2, 'charge', 0, 10000, 1000000000, 1000000, '0', '\x', '\xf4c125a5e39896734edc0c8998393f99367ed65af5b401214046330ec732395b');
INSERT INTO {s}.journal VALUES ('keyss/b', 3, 'seal', 0, 10000, 0, 0, '', '\x7b2273747265616d223a226b657973732f62222c2277696e646f775f6f70656e5f6d73223a302c2277696e646f775f636c6f73655f6d73223a31303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e343836383132352c34392e30313632373038333333333333335d2c227369676d61223a5b302e3030373333353832343735343635373936342c302e3031343531393934393836333035393531395d2c22636f756e74223a3130342c22636f72655f636f756e74223a39362c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c226b6579223a2262227d', '\x0cdf14511420c043760288bf75028de018719cb6f5b808de22341fed873be8a5');
INSERT INTO {s}.journal VALUES ('keyss/a', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\xb6185915988abc1e772f515b9f7068f842826d802c2539f06ef0b2829fea9e7c');
INSERT INTO {s}.journal VALUES ('keyss/b', 4, 'acknowledge', 0, 10000, 0, 0, '', '\x', '\xff710b268930a093a57944292f12f38c881b0690e82dce10ea6a91b5246f06e7');
INSERT INTO {s}.journal VALUES ('keyss/a', 5, 'charge', 10000, 20000, 1000000000, 1000000, '10000', '\x', '\xa77368d2a2b8f3e85f2b67524a75a5275c548f4c12e3b7187e4350af3e5b3a40');
INSERT INTO {s}.journal VALUES ('keyss/a', 6, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a226b657973732f61222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3436303734343839373935393138342c34392e3031333535313032303430383136355d2c227369676d61223a5b302e3030393631393239323535333632323432342c302e3031393233383930383236353639303238355d2c22636f756e74223a39392c22636f72655f636f756e74223a39382c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c226b6579223a2261227d', '\x51bf6d66586448fccdda6714c2e8a5bf0b986d31194276334b59d958e95e08fa');
INSERT INTO {s}.journal VALUES ('keyss/b', 5, 'charge', 10000, 20000, 1000000000, 1000000, '10000', '\x', '\x0f83c2a192ec377b06e02aadd91207d88f148cf3f99d2d3f5f914bfe45b2d1aa');
INSERT INTO {s}.journal VALUES ('keyss/b', 6, 'seal', 10000, 20000, 0, 0, '', '\x7b2273747265616d223a226b657973732f62222c2277696e646f775f6f70656e5f6d73223a31303030302c2277696e646f775f636c6f73655f6d73223a32303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3433363932363331353738393437342c34382e39363036313035323633313537395d2c227369676d61223a5b302e3031313833353734333130303536323537332c302e30323433393339343632353235313330385d2c22636f756e74223a3130322c22636f72655f636f756e74223a39352c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c226b6579223a2262227d', '\x9d1bdbfa2384fd81cef51b1629b78c04877c3d1a285fd2ff7e18fc4d6a2094a7');
INSERT INTO {s}.journal VALUES ('keyss/a', 7, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\x06a9df26496b9d5bf7290d58888b6a8c65bc5109d8e33f93887297d5f011b5d0');
INSERT INTO {s}.journal VALUES ('keyss/b', 7, 'acknowledge', 10000, 20000, 0, 0, '', '\x', '\x442701057c05f9b516c6eb655baceca627c1311378cf2e66de927697e6f0c807');
INSERT INTO {s}.journal VALUES ('keyss/a', 8, 'charge', 20000, 30000, 1000000000, 1000000, '20000', '\x', '\x6b71b2434cddc2b5e83692bfb51625bef6ef6b12f9aa2405595a2efcff11e7f3');
INSERT INTO {s}.journal VALUES ('keyss/a', 9, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a226b657973732f61222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e35343532303739323037393230382c34382e39353539303039393030393930315d2c227369676d61223a5b302e3030383238303335323733353639313133342c302e3031363235313139313739363836303839355d2c22636f756e74223a3130302c22636f72655f636f756e74223a3130312c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c226b6579223a2261227d', '\xa560c2372e21c78caf4e768427ad9c09fc134a3df7775ccf156ae2b26cafe0b5');
INSERT INTO {s}.journal VALUES ('keyss/b', 8, 'charge', 20000, 30000, 1000000000, 1000000, '20000', '\x', '\xdde248c9e5ea3387d8021d2490866b35e508f4309fe7f89d73c15ce0f71f215e');
INSERT INTO {s}.journal VALUES ('keyss/b', 9, 'seal', 20000, 30000, 0, 0, '', '\x7b2273747265616d223a226b657973732f62222c2277696e646f775f6f70656e5f6d73223a32303030302c2277696e646f775f636c6f73655f6d73223a33303030302c22737461747573223a2272656c6561736564222c22726561736f6e223a6e756c6c2c226b696e64223a226d65616e222c2276616c7565223a5b32302e3531383530353035303530353035322c34382e3836323436343634363436343634355d2c227369676d61223a5b302e3031373332313331383934333132353532342c302e3033343732333037323730343931343833355d2c22636f756e74223a3130302c22636f72655f636f756e74223a39392c2272686f223a312e302c2264656c7461223a31652d392c2267756172616e746565223a7b2272686f223a342e302c2264656c7461223a31652d367d2c227370656e74223a7b2272686f223a312e302c2264656c7461223a31652d397d2c2270726976617465223a66616c73652c226665617475726573223a5b2261222c2262225d2c227472616e73666f726d223a5b226e6f6e65222c226e6f6e65225d2c226b6579223a2262227d', '\x8091f6b580cda6fcefc7d16d7b52092915a42e25080b1863d7333d2258a52594');
INSERT INTO {s}.meta VALUES ('schema', '4');
INSERT INTO {s}.settings VALUES ('events', 'first window', '0', 1001911846894139791);
INSERT INTO {s}.settings VALUES ('streams', 'first window', '0', 1001911846894139791);
INSERT INTO {s}.settings VALUES ('users', 'first window', '0', 1001911846894139791);
INSERT INTO {s}.settings VALUES ('keyss/a', 'first window of key a', '0', 4491938252297086);
INSERT INTO {s}.settings VALUES ('keyss/b', 'first window of key b', '0', 1011016689007659313);
INSERT INTO {s}.streams VALUES ('events', false, 4000000000, 1000000000, 30000000000, 1000000000, 0, '\xf83c74b72a791a8e13e24bc1bddc003e873fec91b4e90837f952d70e2ff97420', 14, '\xe890b8a4c6cb8a554817602a4746aa5d234938d750dbabaaa79fb3fd51b221af', 408094824920459249, '\x0000000000000000000000000000000000000000000000000000000000000000', 688466874769060524);
INSERT INTO {s}.streams VALUES ('streams', false, 4000000000, 1000000000, NULL, NULL, 0, '\xace653e858ed2891c2ecc80c46a5859ef4049dd13b950198302fdb9bd9a82a47', 9, '\x48ab15a3e148f4b09fc00668a3518af5863bca44f856cb0e0d61f33f5c29b980', 508598752223683551, '\x0000000000000000000000000000000000000000000000000000000000000000', 394996865263650563);
INSERT INTO {s}.streams VALUES ('users', false, 8000000000, 1000000000, NULL, NULL, 0, '\x30c3f683f1a8134d9a34cb7fdc0e4fe9893a8a0f0c9438892e98081d94cba5af', 9, '\x02fc274b21363725c38d34f9c78352fc044f36800589310c1b3e06814801e303', 647620462876454241, '\xc40b26cb98a6094875e3ceb8e604678a2801249bb729d7ad42e8c9380d514689', 342632979987400478);
INSERT INTO {s}.streams VALUES ('keyss/b', false, 4000000000, 1000000000, NULL, NULL, 0, '\x80c2f92a93bc0be8a7eed77022a9695638eb5bbb26d70e6df6db6e3297a1964b', 9, '\x8091f6b580cda6fcefc7d16d7b52092915a42e25080b1863d7333d2258a52594', 934270645291410675, '\x0000000000000000000000000000000000000000000000000000000000000000', 434276928997885826);
INSERT INTO {s}.streams VALUES ('keyss/a', false, 4000000000, 1000000000, NULL, NULL, 0, '\xd1fd3ffeca3cd1026bc44b77665fd9723c546aeee7ac892c9733b08302fc37d3', 9, '\xa560c2372e21c78caf4e768427ad9c09fc134a3df7775ccf156ae2b26cafe0b5', 1080667399142895424, '\x0000000000000000000000000000000000000000000000000000000000000000', 162992785526291747);
INSERT INTO {s}.users VALUES ('users', 40, '\x00a29504e7a777e6d0f6455c46ba692f005ed0b200000000c0c62d0000000000204e000000000000', '\xd28812cdee718c9b5ed337555674dd66ca9874518592af300a1ee16f51b77b58');
INSERT INTO {s}.users VALUES ('users', 250, '\x03ea516cf6fb0ca31d960db2aa5cb737005ed0b200000000c0c62d0000000000204e000000000000', '\x154ff0a34292f880435f3a3ff9a365abfbc300d09ee4f00085bd4bb16f538697');
INSERT INTO {s}.users VALUES ('users', 388, '\x06132cfa95ce04b6f24d7eae879c31b3005ed0b200000000c0c62d0000000000204e000000000000', '\xf6ebae3ab44455de978a290279c3cd5ff62bbf7bf835991fc3625eb76fe76439');
INSERT INTO {s}.users VALUES ('users', 475, '\x076e4ef18703fc695a8e3eefe47b0758005ed0b200000000c0c62d0000000000204e000000000000', '\x8614c1980d8bb8f518ac47a3e89e52adc131894ad233074dd958d774bb0e26a1');
INSERT INTO {s}.users VALUES ('users', 514, '\x080aae876abf73fa1e20b6b598bdca15005ed0b200000000c0c62d0000000000204e000000000000', '\xff3a9035b1d946b5ae616ef9eda0ce64e03cd3ab25c0c9f06ee4319f20261515');
INSERT INTO {s}.users VALUES ('users', 584, '\x09200639cd8290a7f9deca0491c9cb4c005ed0b200000000c0c62d0000000000204e000000000000', '\x2dc9a13d4d75bdc7f20a5409958dcffdf86c7242afbdc492ff48698fa291f9c5');
INSERT INTO {s}.users VALUES ('users', 661, '\x0a55ae2027eac0ee2a7df544f1ed674b005ed0b200000000c0c62d0000000000204e000000000000', '\x5d2e235e57e02a68680b3d8843253fa9bff0a4bf18adec7800ab90c57a9e20a9');
INSERT INTO {s}.users VALUES ('users', 923, '\x0e6c302970824bf72d44ef2f2b8dd408005ed0b200000000c0c62d0000000000204e000000000000', '\x382fe96f7d8af7a95da59a95949527916ebca75fd4285fa4d66f67bd675abbed');
INSERT INTO {s}.users VALUES ('users', 1045, '\x105718e3e7149ef070c42c37ea2a6dcd005ed0b200000000c0c62d0000000000204e000000000000', '\x4866988d8ec40b079008ab0bc604c2d3142e700d5dbb0ebb8199616bed6cd879');
INSERT INTO {s}.users VALUES ('users', 1051, '\x106d3c30a7c503eb633112bb07e94ca4005ed0b200000000c0c62d0000000000204e000000000000', '\xf7bbeb795ca736749256f15e3b6c114fc193d6c192a4fd08e019e54594510891');
INSERT INTO {s}.users VALUES ('users', 1150, '\x11f84d5b214913ced244a7f865d57180005ed0b200000000c0c62d0000000000204e000000000000', '\xf4b40d9dcba089a2398951eb31a609cf9086e1b3174ab226391069fb3a0f73f8');
INSERT INTO {s}.users VALUES ('users', 1396, '\x15d384caa077668f2cd9938ea0572f21005ed0b200000000c0c62d0000000000204e000000000000', '\xbcc1b926f92625bc3bdc1f23924aeeace9ea71a54a9044c029005af6758b9fce');
INSERT INTO {s}.users VALUES ('users', 1538, '\x180b15c8379342362d7d1d8c7bcafa75005ed0b200000000c0c62d0000000000204e000000000000', '\x2941a07f3bdf044f5c11d9dd74a082e9e05b7e353b7f2fbedfa5adedb8cc09aa');
INSERT INTO {s}.users VALUES ('users', 1559, '\x185ed457f3e04e72d70b65c115668202005ed0b200000000c0c62d0000000000204e000000000000', '\xda278bff36236c7f7a63176937fec678d16482ee5f894343d7fc1326ab0f2bb8');
INSERT INTO {s}.users VALUES ('users', 1843, '\x1ccd690d1e2089bb7fd83187715873ee005ed0b200000000c0c62d0000000000204e000000000000', '\x63c6890a390926e1efc4648b8600e0eb2e5329d1d7016f1ca8bcdb6b6a012228');
INSERT INTO {s}.users VALUES ('users', 1854, '\x1cf9c87a523c80645bbb3e47fec1b032005ed0b200000000c0c62d0000000000204e000000000000', '\x973bc404259d445d5604f46648fddb503745faacf1779c899ecfff7b0f487dc2');
INSERT INTO {s}.users VALUES ('users', 1881, '\x1d6697caad78b6e085279426ffc1d744005ed0b200000000c0c62d0000000000204e000000000000', '\x0d28322ef6d8f92c798541f20274953d0b3f803440bf570813610083493307c5');
INSERT INTO {s}.users VALUES ('users', 2022, '\x1f983b023e211ca11cd00a385425668f005ed0b200000000c0c62d0000000000204e000000000000', '\xcbd28cb8638f3135f652c72f2d84ec2d242d980d91d408ee504511ec312210f5');
INSERT INTO {s}.users VALUES ('users', 2303, '\x23fecb4bb698482e48c97f46f4d5b1c2005ed0b200000000c0c62d0000000000204e000000000000', '\x9ca19183de4373c6c82fe87602992a2baaec6e50aa0b3bf7bd9f16ffd3864c7d');
INSERT INTO {s}.users VALUES ('users', 2439, '\x261ca5b6c99a5a72add2a8454829a907005ed0b200000000c0c62d0000000000204e000000000000', '\x910f97b3faaf410b0b4545b5dc074876c66c0a53e5bad6806fc1bcc8299b6a13');
INSERT INTO {s}.users VALUES ('users', 2480, '\x26c2311ee17a1b45f3511b5fe2707bb5005ed0b200000000c0c62d0000000000204e000000000000', '\x3f4034385173f3c9accb744135ebd6850c8e22f5e0782f77d596f56a4e0617f7');
INSERT INTO {s}.users VALUES ('users', 2536, '\x27a3c72e358c054b8f5b7f0de6df25b8005ed0b200000000c0c62d0000000000204e000000000000', '\x969b8ba643a729e51b7ce047a9cae7c384ef943d49871581fcb8326aa4698594');
INSERT INTO {s}.users VALUES ('users', 2567, '\x281e4145022d13804048875a95d3882f005ed0b200000000c0c62d0000000000204e000000000000', '\x0dafe0b2ac22f095f438f34f9803d7005f75f39aa8133a8a2b907b8da7c562c4');
INSERT INTO {s}.users VALUES ('users', 2574, '\x283b59b2769dbba4a63294aef19b23cf005ed0b200000000c0c62d0000000000204e000000000000', '\xe69bfadc834fffab063cbbf7acac9a02e62b94093d16eb01bf686829740d80c6');
INSERT INTO {s}.users VALUES ('users', 2603, '\x28ada1373fd536a7a7d4160e286a62e1005ed0b200000000c0c62d0000000000204e000000000000', '\xde2da02f171ba299a5d3950b1ab4e64e544d45e4c68a80c3ccdd1930b14bc3ad');
INSERT INTO {s}.users VALUES ('users', 2648, '\x2961b010d5894e84186e778c4b4e126e005ed0b200000000c0c62d0000000000204e000000000000', '\x6ab1597e4b72d3f4a4ff055257c45f351a53fe1cf0dc418cb6ce13d72d727e09');
INSERT INTO {s}.users VALUES ('users', 3036, '\x2f72d6d0c3d5fe35d85cdc47484c420f005ed0b200000000c0c62d0000000000204e000000000000', '\x7256d5efa5bc505ac0d684f02782cf02e85bc1f8b8e3e0947319f2f4e9bd5c04');
INSERT INTO {s}.users VALUES ('users', 3109, '\x30964fc142add6519cf7399bad627acf005ed0b200000000c0c62d0000000000204e000000000000', '\x83472bc66b5fc8d0498b435ccdcde86d569d2fede4752948ac12657ab34d3a77');
INSERT INTO {s}.users VALUES ('users', 3133, '\x30f4b9204c8f59714a49a254b97cb873005ed0b200000000c0c62d0000000000204e000000000000', '\xd40a282c252d3bf6b9071b211fcc0b6ebef04201bc8b2641a576470f2b49beae');
INSERT INTO {s}.users VALUES ('users', 3209, '\x322772bd199a190db481d0cea3c491a7005ed0b200000000c0c62d0000000000204e000000000000', '\xac86546db73f5495ee87c18e7ad93dcd79944627f359741131c6b6c9fb144544');
INSERT INTO {s}.users VALUES ('users', 3473, '\x3646033479163eb0e1ce321ad153d843005ed0b200000000c0c62d0000000000204e000000000000', '\x2fd391211d9c586beae47a2cb6bc9242ebafd7d1e561860da2302c94c3b4e299');
INSERT INTO {s}.users VALUES ('users', 3562, '\x37a9d3a0c86947ac1e43a50714f9c623005ed0b200000000c0c62d0000000000204e000000000000', '\x1864132eea8cffb1068db89d92b778b131de0edd1b3adefb500b9d2518669b1f');
INSERT INTO {s}.users VALUES ('users', 3737, '\x3a6793e6be1a9930b53c7196931c8c2e005ed0b200000000c0c62d0000000000204e000000000000', '\x771f9946d8057ab7d819bbab11e0b2a26170d49fbea0cf4042bca22afb144fe3');
INSERT INTO {s}.users VALUES ('users', 3990, '\x3e5aa4c3a5a919d73765d6322a670212005ed0b200000000c0c62d0000000000204e000000000000', '\x4c603f65cd0b83516ec38178575a913b9222f1641f744ae5882d9cfc32399b91');
INSERT INTO {s}.users VALUES ('users', 4081, '\x3fc633a07189cb16cee416942bfb644e005ed0b200000000c0c62d0000000000204e000000000000', '\xf0d39782a321595a5fdb35d79b2f1c60eccb66f2583576d99038b3f272c6b1f6');
INSERT INTO {s}.users VALUES ('users', 4088, '\x3fe2b2e19cee28ad118b188bd94f8473005ed0b200000000c0c62d0000000000204e000000000000', '\x171075c66c2ae4edf62bf29c5e81ff4e401c0bd656932ff686c8b8649576e57a');
INSERT INTO {s}.users VALUES ('users', 4105, '\x4024f2ee1d101c62b81120293778bab7005ed0b200000000c0c62d0000000000204e000000000000', '\x087bdf19f884782dfb8cda183457c3d25a88b60b850b2d571e5254f582068c19');
INSERT INTO {s}.users VALUES ('users', 4307, '\x434ce43c453494994679e86529923208005ed0b200000000c0c62d0000000000204e000000000000', '\xa3c9b2b5ca52ef602ab9e9a533abefdf355bc541170514c13196a4ac25bbae25');
INSERT INTO {s}.users VALUES ('users', 4313, '\x4364ca60a386ede3d1fbcb2e1598e251005ed0b200000000c0c62d0000000000204e000000000000', '\x3b6b237c81a061115cbed59a72f49289ebf6b925c21dd1584d467d29a0e05ef2');
INSERT INTO {s}.users VALUES ('users', 4624, '\x4843f6ff3fe6fd66abbbe93a260794ef005ed0b200000000c0c62d0000000000204e000000000000', '\x7ad827f0cb57a4d97d1ff3cd35514a6db4e662b1bfa6046d32cb4f5ba38479b1');
INSERT INTO {s}.users VALUES ('users', 4649, '\x48a5a57515c93a090ec15aa3ef4f1bc9005ed0b200000000c0c62d0000000000204e000000000000', '\x5806d3c62ebfb022870fedb6cc1557dc7acfb565a9a463d028f499867c4678d1');
INSERT INTO {s}.users VALUES ('users', 4744, '\x4a22c0fb2559539492104e163ef7cd6e005ed0b200000000c0c62d0000000000204e0000000000004a23128fb7652f93a80dba118941e602005ed0b200000000c0c62d0000000000204e000000000000', '\xf8ba79255143208c3bc216289798e4caf326ab56a11ae97c9ce48a72f782c471');
INSERT INTO {s}.users VALUES ('users', 4801, '\x4b04125b916b3ca59f0fb6b877a990a3005ed0b200000000c0c62d0000000000204e000000000000', '\x3e4638a37fba56eee1ce0463a7ffeafa53e76817ced680a77104ba9377cb2b13');
INSERT INTO {s}.users VALUES ('users', 4853, '\x4bd5e0c79875bbad4dd1edf3f0e6d874005ed0b200000000c0c62d0000000000204e000000000000', '\x43cc3c38b2570677bd2471436ca629e664dc8744e27fa78646c0e48fcb50616e');
INSERT INTO {s}.users VALUES ('users', 5089, '\x4f87b1d3cb6a152f0a869d020d3a121f005ed0b200000000c0c62d0000000000204e000000000000', '\xf6a393ce7f5305ea3f796676ba8aca49aacf011ffeed09a9fc30c171263c18b6');
INSERT INTO {s}.users VALUES ('users', 5555, '\x56cce96665f51e6cc7fe9ed6f8c890ac005ed0b200000000c0c62d0000000000204e000000000000', '\x6e3ef14d7fdb568d61d5c6c8722c89cca364bb30af2061da0161dd55e4090fa3');
INSERT INTO {s}.users VALUES ('users', 5592, '\x57622c572cc82516053d9fee691a6fc4005ed0b200000000c0c62d0000000000204e000000000000', '\x940bc529c9df3aef59f85f89f7c21769b80b0a0d9b549a80a479f96f8bf2d0ea');
INSERT INTO {s}.users VALUES ('users', 5793, '\x5a8691b35c865670a7e6e4dd78788e05005ed0b200000000c0c62d0000000000204e000000000000', '\xe00be3eae36ad705911497adc99c95064d4cd4c058df1a7b10f5aeb54847b1a7');
INSERT INTO {s}.users VALUES ('users', 5800, '\x5aa3194e02de5fd64081c7d55f2e2897005ed0b200000000c0c62d0000000000204e000000000000', '\x8f7ded57163cdde5c3b2ba48d074def9e99ef2ffed3777a0bd39093cde227630');
INSERT INTO {s}.users VALUES ('users', 6000, '\x5dc0f2ad9491868da929d765e4f875ed005ed0b200000000c0c62d0000000000204e000000000000', '\x2d7732b5a81f4bba5a61c60ef0abac66bf3c037c392d0f20b7eec7ae2ac48b55');
INSERT INTO {s}.users VALUES ('users', 6088, '\x5f23b35fd552293e68d69d3e9fcaf5c6005ed0b200000000c0c62d0000000000204e000000000000', '\x5a9f2958fb459227ef79b0a46da8aa84bb9fabd096e878956a24c7717b65a12a');
INSERT INTO {s}.users VALUES ('users', 6261, '\x61d76cb41fdf7dc7e3b6ee2f0de36dcd005ed0b200000000c0c62d0000000000204e000000000000', '\x5e20cbab20051a1f766f7e60726ec2af60248de45a518f5a2fc1f221bdd2e41e');
INSERT INTO {s}.users VALUES ('users', 6381, '\x63b539603d6753111f88ba8b1126c900005ed0b200000000c0c62d0000000000204e000000000000', '\xe771608024b217c49ee6b5857743863e391cc1f8dc8d372de1debc8013eaa813');
INSERT INTO {s}.users VALUES ('users', 6494, '\x657a9b6a5259fb6da0be2fed2b204927005ed0b200000000c0c62d0000000000204e000000000000', '\xc2d0b4361e543e58179dff44840f6dddb2cd7fa63c949f5bc2a2526ed21fb518');
INSERT INTO {s}.users VALUES ('users', 6505, '\x65a74dad4f55dee52effe707d2e7ca16005ed0b200000000c0c62d0000000000204e000000000000', '\x17445fb9f9e1bfed4a514f1cacf5362def6e19efd82fe78896f531577cb14af2');
INSERT INTO {s}.users VALUES ('users', 6528, '\x6601c68a4216223777b7887cd27a98c7005ed0b200000000c0c62d0000000000204e000000000000', '\xa2f1efe50a6e6a8eff054ecc0dfb9a611f5b2d155ed78756f80671f5eaf80d5d');
INSERT INTO {s}.users VALUES ('users', 6542, '\x6638c0e6942dd2ba94d2ed9d2ab4e132005ed0b200000000c0c62d0000000000204e000000000000', '\x18208cf3b11e996bf4d7a10889b256b28612780842469263fe797c58560a6a1c');
INSERT INTO {s}.users VALUES ('users', 6561, '\x6684a3830877717d2e527f057a94bf6f005ed0b200000000c0c62d0000000000204e000000000000', '\x8c4c46462f09c14748a41d14ff5b39d128584b694a5203b165946ec1916b7ec6');
INSERT INTO {s}.users VALUES ('users', 6621, '\x677467f53f2b6b1a9c69ddac9a352b25005ed0b200000000c0c62d0000000000204e000000000000', '\x4962e1159715d0e8fe8c00b39ebb2df4782624c4379063c88e91a88b8c74c678');
INSERT INTO {s}.users VALUES ('users', 6663, '\x681ec9b1d43a299a78a3808fd8b6f414005ed0b200000000c0c62d0000000000204e000000000000', '\x0ba29f3f8715e3feb22ab85d831ff4c1749d79e655203c4194e8b465dec93b8b');
INSERT INTO {s}.users VALUES ('users', 6741, '\x69563cd13d8175cbefdcae68cf118ad9005ed0b200000000c0c62d0000000000204e000000000000', '\x9950157b8017f18632e463f50329321a198c3d81dd54ed1ebb0cbf8d5e25cfb4');
INSERT INTO {s}.users VALUES ('users', 6940, '\x6c72d1eef922b6c270d9a38c8c460ec4005ed0b200000000c0c62d0000000000204e000000000000', '\x6f5f79b7b1a9db90de19983b2775f6225f1ad1b2e99fece89a8dc9d4150964e1');
INSERT INTO {s}.users VALUES ('users', 7205, '\x7095cbdbc2307296f2af1737d5c06672005ed0b200000000c0c62d0000000000204e000000000000', '\xdaec98939ee17d4e65c014cb316835885fb51fae11edd3d24c931877e37eba8d');
INSERT INTO {s}.users VALUES ('users', 7285, '\x71d59ec198c11a222d8d016abdbfb8fe005ed0b200000000c0c62d0000000000204e000000000000', '\x96a6b9793dc4b5a19bf1ac2dd57729f74d96de9d7c3df883cdda63075c1a3307');
INSERT INTO {s}.users VALUES ('users', 7295, '\x71fe04e0a302028413c33b692d6c5c94005ed0b200000000c0c62d0000000000204e000000000000', '\xb42ece2a951f2ed18431cf0f4ee60a84200da91f0db72e676c08b0c1530bbda5');
INSERT INTO {s}.users VALUES ('users', 7298, '\x72087c46debed0013b64a585b7c84e4e005ed0b200000000c0c62d0000000000204e000000000000', '\x90ea224a92758f3c419e855c83f0703cb5404a56b48e0c52167f81d5d195c221');
INSERT INTO {s}.users VALUES ('users', 7453, '\x747416f1711f7536f96468c0b97e2975005ed0b200000000c0c62d0000000000204e000000000000', '\x6d077f05f9d938927fa8ae0270a6598a8780cc37d4a79456c2b5a8bdcaa74ff3');
INSERT INTO {s}.users VALUES ('users', 7643, '\x776d61e1c1f9a62275c3930e4c307c3f005ed0b200000000c0c62d0000000000204e000000000000', '\xc42581b1ff0c6469caac059db2d7ec2b2a97b252f4a7fefec851b9352f2c6209');
INSERT INTO {s}.users VALUES ('users', 7661, '\x77b6d1347eb14d246d9c1b7b0b66ee6d005ed0b200000000c0c62d0000000000204e000000000000', '\x1caf8e1f4a80452592f145d9d427b8d7bf3c06d79f7b1d7ff55a690bf4dfa519');
INSERT INTO {s}.users VALUES ('users', 7902, '\x7b7a70069a0ad19de554f5dbae072abd005ed0b200000000c0c62d0000000000204e000000000000', '\xa0695655e7e7d44bd03c30676e66c42eab5e6cfeb8604dae35a59a72bbad4390');
INSERT INTO {s}.users VALUES ('users', 7917, '\x7bb77557a6c745e26ce81c6a0c1e91bd005ed0b200000000c0c62d0000000000204e000000000000', '\x251a4cc8130ffa728a359551924327ff93fec797ec3faed56970e7d1c4943e6b');
INSERT INTO {s}.users VALUES ('users', 7939, '\x7c0ee303e29e3f3f06e723131bd83ce0005ed0b200000000c0c62d0000000000204e000000000000', '\xe06a19890d09d3350c29434ffffba3114e8166bcdb44fd2a5aa30cd39d4fc6f6');
INSERT INTO {s}.users VALUES ('users', 7947, '\x7c2e2211b3531c8f8fbf7518e5a60f9b005ed0b200000000c0c62d0000000000204e000000000000', '\xb75cd7f254b9b5e2a0518a339c8c2b14337d2cd445c3241e81f1074f744b171b');
INSERT INTO {s}.users VALUES ('users', 8018, '\x7d498415f0f9f0e3c541a6fa7290e75a005ed0b200000000c0c62d0000000000204e000000000000', '\xd76897be52f19f699382b1e5e903f8853fa18841b36c36020cb650c7250d0dbb');
INSERT INTO {s}.users VALUES ('users', 8099, '\x7e8c0610b2307fb982599e1496dc3730005ed0b200000000c0c62d0000000000204e000000000000', '\xf7737082e7bd13beaebc45ddc398abacd0653bdae73d4830e23249402fc322ad');
INSERT INTO {s}.users VALUES ('users', 8151, '\x7f5ff3483ccd9574703835bcec6a899c005ed0b200000000c0c62d0000000000204e000000000000', '\x28ebea9c13e64158e26c1b1b7b65c1fc46955106b3871d51a1044b85baa55773');
INSERT INTO {s}.users VALUES ('users', 8288, '\x81838962dfe013b12259d6b2f378e5ce005ed0b200000000c0c62d0000000000204e000000000000', '\xfb1d3e08934dadac45af4554116bfa43b5f7052b9a4c3aa75cc2ee7eab7ece24');
INSERT INTO {s}.users VALUES ('users', 8335, '\x823fa3f82234f665c2865a589e685f4b005ed0b200000000c0c62d0000000000204e000000000000', '\xdd2888e683f7c29b86fc038446b5cf15b85f96dfaa7677ddff4adff88734b2f2');
INSERT INTO {s}.users VALUES ('users', 8417, '\x838468c2dbf914d800f03bcb3336119d005ed0b200000000c0c62d0000000000204e000000000000', '\x92e017853e419cbbfd192dac564771ca92018a79ccc263110ee999ee23a188a3');
INSERT INTO {s}.users VALUES ('users', 8550, '\x8599374c2105c2b93b5781dce5845762005ed0b200000000c0c62d0000000000204e000000000000', '\x57254bfaec11dc51bf02130a18aed91d2b4566d855483a13a96f3c357b5f1326');
INSERT INTO {s}.users VALUES ('users', 8655, '\x873cb2504062ce3d7d0f26bc18859433005ed0b200000000c0c62d0000000000204e000000000000', '\x844dca3de1865afb5ff555de62decbcbdfd94c926e33f38b59bb29a8bf765f4e');
INSERT INTO {s}.users VALUES ('users', 8975, '\x8c3c1b9e6f9ce53bbdcf0078ffc08ae3005ed0b200000000c0c62d0000000000204e000000000000', '\xf1bf3972bf4f01d4c757ab0419f2736c2fd2ffceb6299f6f367caf81265bfb06');
INSERT INTO {s}.users VALUES ('users', 9053, '\x8d74d03085516a96082f3db71a5ed781005ed0b200000000c0c62d0000000000204e000000000000', '\x0e3b8f8eeb6c8a2046c8f26f21b897dbc2a3a4f0ff0f45b508416ee61be3ed3a');
INSERT INTO {s}.users VALUES ('users', 9152, '\x8f017855c880cfd1ce736762addad08d005ed0b200000000c0c62d0000000000204e000000000000', '\xc080f2aa48a66d1a13f1da7a1ee5a7ecd2675537b86027da6311f0f276f8f9d7');
INSERT INTO {s}.users VALUES ('users', 9407, '\x92fe72ead51a020f05efa56ed3d941b8005ed0b200000000c0c62d0000000000204e000000000000', '\x1f2a56925a60f4305a57e9b743911977b0fab13803679b06040aecc952ae5145');
INSERT INTO {s}.users VALUES ('users', 9456, '\x93c39936a0446a28125e88eca514b6ae005ed0b200000000c0c62d0000000000204e000000000000', '\xd58d129951302c57e992798e52865fcb7a1dbe0a08e669e333d0c96a0f227d7e');
INSERT INTO {s}.users VALUES ('users', 9555, '\x954cc8e84dafb9149ab96bbbc69ebc32005ed0b200000000c0c62d0000000000204e000000000000', '\x893354284fcb51ca80bc0f8987edacd5fb22d87b1d6bff3991bc7804cf4a39de');
INSERT INTO {s}.users VALUES ('users', 9624, '\x9661c0c41ae3d5fcc95b41af4d549229005ed0b200000000c0c62d0000000000204e000000000000', '\xff6fdcebf61f3031a1c0203508fb2e32570fd14740c623217dcb151276bdf2e6');
INSERT INTO {s}.users VALUES ('users', 9628, '\x9672bfff7b1ce3b0bd17ac8894bcee92005ed0b200000000c0c62d0000000000204e000000000000', '\x7af713791d980217537de2487d760ee163e903ce6ee837551720828778d6cd7b');
INSERT INTO {s}.users VALUES ('users', 9672, '\x972195e6e646b59b58244e0d35d6674c005ed0b200000000c0c62d0000000000204e000000000000', '\xd933da8cb685a69b9669e585a94ad3490080b0fc95c8995fe6d1bf64ef97e6db');
INSERT INTO {s}.users VALUES ('users', 9740, '\x983388f46515ab3d46b116a20a9abc60005ed0b200000000c0c62d0000000000204e000000000000', '\xe3146a42fe1e5ba2275014121e7fdca1798f37c020da5441802bd86a7b64563d');
INSERT INTO {s}.users VALUES ('users', 9940, '\x9b53518f1419a2f21224bf6301c2fcda005ed0b200000000c0c62d0000000000204e000000000000', '\x11db185614cbef3fbdd865b7ef8e92e2c84b2d071d0045eb634037c44f3cdc7f');
INSERT INTO {s}.users VALUES ('users', 10184, '\x9f2395658c51f006f429c01b4c3c055c005ed0b200000000c0c62d0000000000204e000000000000', '\x05d6e003f0af70910b9c113561c35a168f39044bbd651489c6d884959be9a09a');
INSERT INTO {s}.users VALUES ('users', 10224, '\x9fc0375a9e80754498e85c13836a721f005ed0b200000000c0c62d0000000000204e000000000000', '\x4f09cfb62a8484b01dd9764dc1844ecdb0bf26cbc70559d1b2c6da07783aa6d0');
INSERT INTO {s}.users VALUES ('users', 10226, '\x9fcaa096368b0ac20b4670890de24976005ed0b200000000c0c62d0000000000204e000000000000', '\x230a48789f8ac26660a26daee05d961c730aefa708b65127135ac027fa1d618e');
INSERT INTO {s}.users VALUES ('users', 10255, '\xa03d31c8819ee62325dd6a87dc3592d1005ed0b200000000c0c62d0000000000204e000000000000', '\x07b82b37d039278e67967ee445bad60a968975e10782ea9b332a3de8afe633e1');
INSERT INTO {s}.users VALUES ('users', 10371, '\xa20f0d106b902f4420428af23c07cd77005ed0b200000000c0c62d0000000000204e000000000000', '\x512a38944fb33f331a06e7661226df04185ba478a6bf4e7550a9e838dae194c4');
INSERT INTO {s}.users VALUES ('users', 10378, '\xa22bb1ec3dd5c66068a84e355712c5e6005ed0b200000000c0c62d0000000000204e000000000000', '\x6ae88d46e742df12c13669365ec2886f2bd62a585f32606e472016234646013f');
INSERT INTO {s}.users VALUES ('users', 10416, '\xa2c11e2c5300d7ba66038adc5b3a174c005ed0b200000000c0c62d0000000000204e000000000000', '\x12062c0f316b717ac5eb0726095fca092c494026341ab75b7507bd373170d644');
INSERT INTO {s}.users VALUES ('users', 10418, '\xa2c81316a0f7e4b82eae049a689f0932005ed0b200000000c0c62d0000000000204e000000000000', '\xb02ca2a9d18542ab3f25eb3625c6ae439ba543e4058e1a18b303e6fd7b7f6948');
INSERT INTO {s}.users VALUES ('users', 10431, '\xa2fce526b29e50cfd741f2a215013086005ed0b200000000c0c62d0000000000204e000000000000', '\xf198a1449eae9bdedc0ec4403b2f56eccda2191fbe6d23b2cadf29bd824ef5f1');
INSERT INTO {s}.users VALUES ('users', 10447, '\xa33e40fa2dff22909541f900dfc8dc86005ed0b200000000c0c62d0000000000204e000000000000', '\x3c8cd28e9988469bdc21f2ee6d58471a22660e2013221456b01cb5bf7047d6b3');
INSERT INTO {s}.users VALUES ('users', 10584, '\xa562e7ef03c44df1f60a7a0d044c8f69005ed0b200000000c0c62d0000000000204e000000000000', '\x6020d62ffe11354afe71dd1b2dd2ec0df1ba59a1b82e3e3503cb74e39d93a3ff');
INSERT INTO {s}.users VALUES ('users', 10919, '\xaa9d16a74d6dba03f37e8a24bc3d0cb7005ed0b200000000c0c62d0000000000204e000000000000', '\xb12777d685b6fb49fb6cb8efb8f0667629382dd2463677884350e0504f7a81d5');
INSERT INTO {s}.users VALUES ('users', 10934, '\xaad8ae27a40697345aae797641541c62005ed0b200000000c0c62d0000000000204e000000000000', '\x44675a35dda6003dc002dbf8c0d83cc808d78cd605fdbba7ff87e9cae6ae5b70');
INSERT INTO {s}.users VALUES ('users', 11024, '\xac42fb0598998eea703dfbd85e99287f005ed0b200000000c0c62d0000000000204e000000000000', '\xba088619919afde0a5d4e9ebbc5eaf39b53737ce7a0485e7c4ed8fa61e7c6a1a');
INSERT INTO {s}.users VALUES ('users', 11049, '\xaca5a62075d9b0894c3298f6d10d516d005ed0b200000000c0c62d0000000000204e000000000000', '\x4c2d1195d00968947e05ff4feff624800fd77199dcc8a1ad262f2b3bca8f7008');
INSERT INTO {s}.users VALUES ('users', 11165, '\xae76c08ad260b7dc12b25c629a0fbb5a005ed0b200000000c0c62d0000000000204e000000000000', '\x1b4ac494f3877fedbf9697db24daa6d56bf8cc0d849dfca251475cb3ff264f5f');
INSERT INTO {s}.users VALUES ('users', 11269, '\xb017bb9a0e2801431cc9fd7aefec4f0a005ed0b200000000c0c62d0000000000204e000000000000', '\xd1a0e31acc5751fa537d814cd4d879a7259cb46d20d3ad8d09f1460000ad5b81');
INSERT INTO {s}.users VALUES ('users', 11399, '\xb21dd6fe051f887d455ea5a1c0136c30005ed0b200000000c0c62d0000000000204e000000000000', '\xcf8edf5799e4ae38496b29d5d96c9c1983cc59f32485640f59fed2f02918c64a');
INSERT INTO {s}.users VALUES ('users', 11414, '\xb25b71f6e0bbd63dc826081b6017a714005ed0b200000000c0c62d0000000000204e000000000000', '\xfb3a30e66211e2889bbeef399631aa6e9a7e7f6ea713ddd818b9bf27bd1876a4');
INSERT INTO {s}.users VALUES ('users', 11714, '\xb709ac9352658f9ab05db0d5f3941a85005ed0b200000000c0c62d0000000000204e000000000000', '\xe800b1019e894daec6dce597a22cfe3f9dca7d8c4c8cd906e18d43de5ebc1284');
INSERT INTO {s}.users VALUES ('users', 11940, '\xba90812ab370d9a52067cff1a326baa6005ed0b200000000c0c62d0000000000204e000000000000ba92a5dde07e5d03ff5f0e805110470d005ed0b200000000c0c62d0000000000204e000000000000', '\xaa6acf5492e4c1e0dc501346f7395b5457878c56b85026799ff28fc2de019535');
INSERT INTO {s}.users VALUES ('users', 12039, '\xbc1c59fa8fe1f692e25fe27ed6086103005ed0b200000000c0c62d0000000000204e000000000000', '\x5b63fd787b2074f2c0ba36d458e1de508a8cc0cd99c0eb1c6227136f09c4df2d');
INSERT INTO {s}.users VALUES ('users', 12207, '\xbebdcb8ef6b38817173997db1039fdb9005ed0b200000000c0c62d0000000000204e000000000000', '\xd98e6107c2f1c098192b0c423672bdd8d0bc22c34bb63a8e6d756d9af36df65d');
INSERT INTO {s}.users VALUES ('users', 12310, '\xc05a79c53d5c21f8d7deeaa51ce737be005ed0b200000000c0c62d0000000000204e000000000000', '\x9b8d7b2327843c70d4fd609f6ea8ee1556288df56df352673a99dfce16022048');
INSERT INTO {s}.users VALUES ('users', 12378, '\xc16ab6e533fa8faa349782b7fa764827005ed0b200000000c0c62d0000000000204e000000000000', '\x8b8a7e6bfd28a0eb9ba11e70ad9161e217de1107513c5786f48b8679fff43564');
INSERT INTO {s}.users VALUES ('users', 12447, '\xc27f9d6d7d688481ec25eca3d27077ec005ed0b200000000c0c62d0000000000204e000000000000', '\xd9038a31572c075d483cfc4d262337e418c5b2afbd0efbef99fa44c146668bf5');
INSERT INTO {s}.users VALUES ('users', 12602, '\xc4e8e320ae65ff8d35ce2893453412e9005ed0b200000000c0c62d0000000000204e000000000000', '\x31520f324165319754fe554ee95847173375c265b7d8dfd7095c2f40e8083688');
INSERT INTO {s}.users VALUES ('users', 12654, '\xc5b8f4a714466f56cfccaa688225b78c005ed0b200000000c0c62d0000000000204e000000000000', '\xef62238376ed9ba2d60cb727f20f0162127747da678abeb6cc830827a1ce8a1a');
INSERT INTO {s}.users VALUES ('users', 12713, '\xc6a6a7c7670467c466bd7cff18ecad17005ed0b200000000c0c62d0000000000204e000000000000', '\x355e06c5152f00f155c84468048c974facacd451d2c7fae2df9812e64bcaccff');
INSERT INTO {s}.users VALUES ('users', 12977, '\xcac484329cfe661651852279b3865831005ed0b200000000c0c62d0000000000204e000000000000', '\x79354f56b81ddb9262d8c4263cf6b3b66265e451de0f916c06d8b0c1df5a58c4');
INSERT INTO {s}.users VALUES ('users', 13313, '\xd00405819fe741ec3a2423cc633e3025005ed0b200000000c0c62d0000000000204e000000000000', '\x588078b3adba779a2380ab66acc4ba7bc0ac491aa57ddef1395ae11329c65fe1');
INSERT INTO {s}.users VALUES ('users', 13439, '\xd1ff40324ffaa9922bebbdbf9861e0fc005ed0b200000000c0c62d0000000000204e000000000000', '\x17c2d557329487c0e341c0d0f6845def7d0f8aa32ad9faa8f9778afa5cc083db');
INSERT INTO {s}.users VALUES ('users', 13574, '\xd41aa530118fffbf453a84fee9fa188c005ed0b200000000c0c62d0000000000204e000000000000', '\x75d0cb7d99162421bc3ac833c9df301025d6fa3ad87c3b53990579f67bbae580');
INSERT INTO {s}.users VALUES ('users', 13661, '\xd5766d2c29d88d4ca69459e5a8397705005ed0b200000000c0c62d0000000000204e000000000000', '\xcc8a1159679f1d76ced2946bd642e867dea2d6aaf89b992ff5b29274db971e74');
INSERT INTO {s}.users VALUES ('users', 13736, '\xd6a3a2dd9b476842d1e78fc74e3da3c7005ed0b200000000c0c62d0000000000204e000000000000', '\xb38ae4a799aeb7aa53184afed0bbdd14ecfb0289a5c4a54ba701e72c136a64a0');
INSERT INTO {s}.users VALUES ('users', 13886, '\xd8f997b112e4368dbf2dd37a875f9a24005ed0b200000000c0c62d0000000000204e000000000000', '\xac85bc547ce69da4f107afa8990025029b9cbf4871e77a6f2c6dd3a030175e93');
INSERT INTO {s}.users VALUES ('users', 13917, '\xd974f178d46683066d815e71fceff545005ed0b200000000c0c62d0000000000204e000000000000', '\x3fa9e6b37f67b6eec0a2d7523bd482b6dc94890b93bd1ffccc05295455252404');
INSERT INTO {s}.users VALUES ('users', 14016, '\xdb020856ff68c110799d95806b8aadbb005ed0b200000000c0c62d0000000000204e000000000000', '\x2a42121163ece3c91c73337339fce4e840a8f7810b542e870d25ef66f863f59d');
INSERT INTO {s}.users VALUES ('users', 14083, '\xdc0f64ec8b10c1ab98f25dc4697029fd005ed0b200000000c0c62d0000000000204e000000000000', '\x102a7a8fad96d35501eef0bc3681498426af8a1a703d145f584fc02e86528c22');
INSERT INTO {s}.users VALUES ('users', 14411, '\xe12cbea1a1de3fcfb1d4f80f0528e312005ed0b200000000c0c62d0000000000204e000000000000', '\xdeb1e718ff7e644dd4ffc666923c9adefdd1c7a615f98978fdd98a6230e566e4');
INSERT INTO {s}.users VALUES ('users', 14552, '\xe362ce64ed43e2dd678fda3c7804859e005ed0b200000000c0c62d0000000000204e000000000000', '\x53f3328172c021ce2146b1f1dde279a6c787f498fd980d9fe71c539936bc01aa');
INSERT INTO {s}.users VALUES ('users', 14611, '\xe44d31d39fc8ccdfa68cb60ac0b45122005ed0b200000000c0c62d0000000000204e000000000000', '\xdf62952654a75f31586f2d0cc898650082bf3276b93ee546936f37cb1d61a175');
INSERT INTO {s}.users VALUES ('users', 14622, '\xe479a6f08d0f17b18595721bb982612c005ed0b200000000c0c62d0000000000204e000000000000', '\x1ed4c47fe8a67e5cfed6f0e228d11651ed93d291e23f44e7345d075245bc441e');
INSERT INTO {s}.users VALUES ('users', 14724, '\xe612d68d8ac6c313f8b6ae8be3d7fa52005ed0b200000000c0c62d0000000000204e000000000000', '\xd4bfb1ffa9deecdfb39631905dc96b871faf9b4ac92b7a2847311506d75b5a38');
INSERT INTO {s}.users VALUES ('users', 14797, '\xe73694e38bb1ef06f07284f430586efd005ed0b200000000c0c62d0000000000204e000000000000', '\x20e4dc7927ec617b25530980ef4cfaf73825f8b2c2e07ee5a5043f38fc93d1e5');
INSERT INTO {s}.users VALUES ('users', 15027, '\xeacf4faef47ed0c6f3f8f97c405a5c83005ed0b200000000c0c62d0000000000204e000000000000', '\xe63e6e0f3b34a87e1dfe025608752321005422c42599bab0e5c113a0a3a941ec');
INSERT INTO {s}.users VALUES ('users', 15366, '\xf01bf1881608a586db6c21712624232e005ed0b200000000c0c62d0000000000204e000000000000', '\xc52085b5828998fbb730fcb1fbd9f6a2bf5e47e7f6ba283f016ec960b79b3a76');
INSERT INTO {s}.users VALUES ('users', 15434, '\xf12a2c3c7f0557b8377a6eda8d4ba661005ed0b200000000c0c62d0000000000204e000000000000', '\x4406423aa71990404f297104c1c0bada005ed22ecbd97b92ce55ceb5c90507b6');
INSERT INTO {s}.users VALUES ('users', 15699, '\xf54ca5ae623169b67ff5599d4537e92b005ed0b200000000c0c62d0000000000204e000000000000', '\xf6460ba0e1430bb550c33978ebb610b3d3a51056fcf3eb465c00892bf2016a15');
INSERT INTO {s}.users VALUES ('users', 15797, '\xf6d4d5c622e5968388706d26983a122d005ed0b200000000c0c62d0000000000204e000000000000', '\x7c527969d5d2a6d44d4b46fc6e0b33c9341b0928b39a666c87e36766d27892e5');
INSERT INTO {s}.users VALUES ('users', 15888, '\xf8435fcfadfd40435d9856d28178f850005ed0b200000000c0c62d0000000000204e000000000000', '\x77d916024748acd8e31f3c18e36086654498a7e90ead065204586cb1b0f447fe');
INSERT INTO {s}.users VALUES ('users', 15984, '\xf9c117d530d4312a712db03e63af994e005ed0b200000000c0c62d0000000000204e000000000000', '\x733693b7f572a50761b4cc8c11dd48b788ad7a63ca11428bd3bcfcce0433fb90');
INSERT INTO {s}.users VALUES ('users', 16104, '\xfba3b7855d9b42987473cac66209f6c1005ed0b200000000c0c62d0000000000204e000000000000', '\xbe6f1547c8da55043a56af8433806938e117c5f467d4f8692e0da571ded1ba65');
INSERT INTO {s}.users VALUES ('users', 16135, '\xfc1e03c6488b70438b0fd1cdf399afe1005ed0b200000000c0c62d0000000000204e000000000000', '\xd957da1dd24a2707b79fccee5d12ea23e54946e1b7287b392d661d5215178506');
INSERT INTO {s}.users VALUES ('users', 16264, '\xfe23f8c6addb51dd8239a69b3fe72efd005ed0b200000000c0c62d0000000000204e000000000000', '\x1aa185cb4d71ae6415b5546f15a9ba80fbb25c13ae6598f03831e386c7346fc7');
INSERT INTO {s}.users VALUES ('users', 16339, '\xff4f7543c3e06495ed57e041d2a42924005ed0b200000000c0c62d0000000000204e000000000000', '\x6e5fc3c3723e9762922e42e200906c0c232193e1a0731ed1b9dac821e9f1c055');
INSERT INTO {s}.windows VALUES ('events', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, '0,5000,total', 3, '\xe91ec8da5d6d2a354a3e06c5288a19c7000000000000000200000001', 663619164433964699);
INSERT INTO {s}.windows VALUES ('events', 5000, 15000, 'acknowledged', 1, 1000000000, 1000000, '5000,10000,total', 6, '\xe91ec8da5d6d2a354a3e06c5288a19c7000000000000000400000001', 1045386144033354115);
INSERT INTO {s}.windows VALUES ('events', 10000, 20000, 'acknowledged', 1, 1000000000, 1000000, '10000,15000,total', 8, '\xe91ec8da5d6d2a354a3e06c5288a19c7000000000000000600000001', 33913963018140782);
INSERT INTO {s}.windows VALUES ('events', 15000, 25000, 'sealed', 1, 1000000000, 1000000, '15000,20000,total', 12, '\xe91ec8da5d6d2a354a3e06c5288a19c7000000000000000800000001', 581768186847846348);
INSERT INTO {s}.windows VALUES ('events', 20000, 30000, 'sealed', 1, 1000000000, 1000000, '20000,25000,total', 14, '\xe91ec8da5d6d2a354a3e06c5288a19c7000000000000000a00000001', 647955231704257294);
INSERT INTO {s}.windows VALUES ('streams', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, 'stream', 3, '\x284233ffd4d3e12b3f9926d6ca1bc1b4000000000000000200000001', 50489755526795448);
INSERT INTO {s}.windows VALUES ('streams', 10000, 20000, 'acknowledged', 1, 1000000000, 100000, 'stream', 6, '\x284233ffd4d3e12b3f9926d6ca1bc1b4000000000000000400000001', 976424648241010271);
INSERT INTO {s}.windows VALUES ('streams', 20000, 30000, 'sealed', 1, 1000000000, 100000, 'stream', 9, '\x284233ffd4d3e12b3f9926d6ca1bc1b4000000000000000600000001', 966965620782296804);
INSERT INTO {s}.windows VALUES ('users', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, 'user', 3, '\x344abbfbd4191c6776c66303854d247d000000000000000200000001', 730067751824508157);
INSERT INTO {s}.windows VALUES ('users', 10000, 20000, 'acknowledged', 1, 1000000000, 1000000, 'user', 6, '\x344abbfbd4191c6776c66303854d247d000000000000000400000001', 934054933092714213);
INSERT INTO {s}.windows VALUES ('users', 20000, 30000, 'sealed', 1, 1000000000, 1000000, 'user', 9, '\x344abbfbd4191c6776c66303854d247d000000000000000600000001', 1102764276694407125);
INSERT INTO {s}.windows VALUES ('keyss/a', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, '0', 3, '\xd3b96a20bd4744b13790cc2f390f8663000000000000000200000001', 614777613373776096);
INSERT INTO {s}.windows VALUES ('keyss/b', 0, 10000, 'acknowledged', 1, 1000000000, 1000000, '0', 3, '\x52f5ad134e89ff5a8db1929d47625f79000000000000000200000001', 614777613373776096);
INSERT INTO {s}.windows VALUES ('keyss/a', 10000, 20000, 'acknowledged', 1, 1000000000, 1000000, '10000', 6, '\xd3b96a20bd4744b13790cc2f390f8663000000000000000400000001', 986343045955276703);
INSERT INTO {s}.windows VALUES ('keyss/b', 10000, 20000, 'acknowledged', 1, 1000000000, 1000000, '10000', 6, '\x52f5ad134e89ff5a8db1929d47625f79000000000000000400000001', 986343045955276703);
INSERT INTO {s}.windows VALUES ('keyss/a', 20000, 30000, 'sealed', 1, 1000000000, 1000000, '20000', 9, '\xd3b96a20bd4744b13790cc2f390f8663000000000000000600000001', 780350199311338181);
INSERT INTO {s}.windows VALUES ('keyss/b', 20000, 30000, 'sealed', 1, 1000000000, 1000000, '20000', 9, '\x52f5ad134e89ff5a8db1929d47625f79000000000000000600000001', 780350199311338181);
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
