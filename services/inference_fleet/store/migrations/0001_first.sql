-- Every stamp is written by the database's clock (clock_timestamp()) and compared with it (statement_timestamp()).

CREATE SEQUENCE connection_epochs;

CREATE TABLE instances (
    id          text PRIMARY KEY,
    address     text NOT NULL DEFAULT '',          -- empty: present but not dialable
    boot_id     text NOT NULL,                     -- which process of that id this is
    started_at  timestamptz NOT NULL,
    last_seen   timestamptz NOT NULL
);

CREATE TABLE connections (
    node_id           text PRIMARY KEY,
    owner             text NOT NULL DEFAULT '',    -- empty: departed; the epoch stays
    epoch             bigint NOT NULL,
    boot_id           text NOT NULL DEFAULT '',    -- the worker boot that made the newest claim
    previous_boot_id  text NOT NULL DEFAULT '',    -- the boot it took the node from, while that one was connected
    conflicts         bigint NOT NULL DEFAULT 0,   -- how often a different boot took a held node
    boot_changed_at   timestamptz,
    connected_at      timestamptz,
    disconnected_at   timestamptz
);
CREATE INDEX connections_owner ON connections (owner);

CREATE TABLE nodes (
    id                  text PRIMARY KEY,
    name                text NOT NULL UNIQUE,
    node_type           text NOT NULL,
    approved            boolean NOT NULL,
    draining            boolean NOT NULL DEFAULT false,
    status              text NOT NULL,
    status_reason       text NOT NULL DEFAULT '',
    boot_id             text NOT NULL DEFAULT '',
    credential_sha256   text NOT NULL,
    credential_version  bigint NOT NULL DEFAULT 1, -- raised by every change; live tunnels of an older one are cut
    capacity            jsonb NOT NULL DEFAULT '{}',
    labels              jsonb NOT NULL DEFAULT '{}',
    address             text NOT NULL DEFAULT '' CHECK (address = ''),
    http_address        text NOT NULL DEFAULT '' CHECK (http_address = ''),
    last_heartbeat      timestamptz,
    created_at          timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL
);

CREATE TABLE node_models (
    node_id      text NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    name         text NOT NULL,
    port         integer NOT NULL,
    process_key  text NOT NULL,
    state        text NOT NULL,
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (node_id, name)
);
CREATE INDEX node_models_name ON node_models (name);

CREATE TABLE leases (
    name        text PRIMARY KEY,
    holder      text NOT NULL,
    epoch       bigint NOT NULL,
    expires_at  timestamptz NOT NULL
);

CREATE TABLE reaps (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    node_id    text NOT NULL,
    node_name  text NOT NULL,
    action     text NOT NULL,                      -- demoted, models-deleted, model-deleted, credential-replaced, ...
    by         text NOT NULL,                      -- the instance that acted
    reason     text NOT NULL,
    evidence   jsonb NOT NULL,
    epoch      bigint                              -- of the node's connection when it was judged
);
CREATE INDEX reaps_node ON reaps (node_id, id);

CREATE TABLE users (
    id             text PRIMARY KEY,
    email          text NOT NULL UNIQUE,
    name           text NOT NULL,
    password_hash  text NOT NULL,
    role           text NOT NULL,                  -- admin, user
    active         boolean NOT NULL,
    created_at     timestamptz NOT NULL
);

CREATE TABLE sessions (
    id          text PRIMARY KEY,                  -- HMAC-SHA256(secret, token), hex
    user_id     text NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at  timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL
);

CREATE TABLE api_keys (
    id          text PRIMARY KEY,
    user_id     text NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name        text NOT NULL,
    key_hash    text NOT NULL UNIQUE,              -- HMAC-SHA256(secret, key), hex
    created_at  timestamptz NOT NULL
);
