CREATE TABLE zapdb_changes ( tenant BIGINT NOT NULL, transaction_number BIGINT NOT NULL, table_number BIGINT NOT NULL, key BYTEA NOT NULL, event TEXT, before BYTEA, after BYTEA, PRIMARY KEY (tenant, transaction_number, table_number, key) )
CREATE TABLE zapdb_followers ( tenant BIGINT NOT NULL, name TEXT NOT NULL, bookmark TEXT NOT NULL, moved_at BIGINT NOT NULL, PRIMARY KEY (tenant, name) )
CREATE TABLE zapdb_stamps ( tenant BIGINT NOT NULL, number BIGINT NOT NULL, snapshot TEXT NOT NULL, stamped_at BIGINT NOT NULL, PRIMARY KEY (tenant, number) )
CREATE TABLE zapdb_transactions ( tenant BIGINT NOT NULL, number BIGINT NOT NULL, position BIGINT NOT NULL, principal TEXT NOT NULL, made_at BIGINT NOT NULL, PRIMARY KEY (tenant, number) )
