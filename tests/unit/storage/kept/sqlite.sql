-- layout 0032
CREATE TABLE zapdb_archives ( tenant BIGINT NOT NULL, table_number BIGINT NOT NULL, "key" BLOB NOT NULL, cell BIGINT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tenant, table_number, "key", cell) )
CREATE TABLE zapdb_blobs ( id BLOB NOT NULL, chunk BIGINT NOT NULL, checksum BIGINT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (id, chunk) )
CREATE TABLE zapdb_calls ( id BLOB NOT NULL, called_at BIGINT NOT NULL, principal TEXT NOT NULL, method TEXT NOT NULL, tenant_name TEXT NOT NULL, tables TEXT NOT NULL, status TEXT NOT NULL, duration_us BIGINT NOT NULL, PRIMARY KEY (id) )
CREATE INDEX zapdb_calls_by_time ON zapdb_calls (called_at, id)
CREATE INDEX zapdb_calls_refused ON zapdb_calls (called_at, id) WHERE status = 'PERMISSION_DENIED'
CREATE TABLE zapdb_catalog ( kind TEXT NOT NULL, "key" TEXT NOT NULL, seq BIGINT NOT NULL, value TEXT, PRIMARY KEY (kind, "key") )
CREATE UNIQUE INDEX zapdb_catalog_seq ON zapdb_catalog (seq)
CREATE TABLE zapdb_catalog_versions ( tenant BIGINT NOT NULL, version BIGINT NOT NULL, PRIMARY KEY (tenant) )
CREATE TABLE zapdb_changes ( tenant BIGINT NOT NULL, transaction_number BIGINT NOT NULL, table_number BIGINT NOT NULL, "key" BLOB NOT NULL, event TEXT, "before" BLOB, "after" BLOB, replaced BOOLEAN, archive_before BLOB, archive_after BLOB, PRIMARY KEY (tenant, transaction_number, table_number, "key") ) WITHOUT ROWID
CREATE INDEX zapdb_changes_by_key ON zapdb_changes (tenant, table_number, "key", transaction_number)
CREATE INDEX zapdb_changes_deletions ON zapdb_changes (tenant, table_number, "key") WHERE event IS NULL AND after IS NULL
CREATE INDEX zapdb_changes_events ON zapdb_changes (tenant, transaction_number) WHERE event IS NOT NULL
CREATE TABLE zapdb_commit_tokens ( id BLOB NOT NULL, owner TEXT NOT NULL, expires_at BIGINT NOT NULL, PRIMARY KEY (id) )
CREATE TABLE zapdb_counters ( name TEXT NOT NULL, value BIGINT NOT NULL, PRIMARY KEY (name) )
CREATE TABLE zapdb_followers ( tenant BIGINT NOT NULL, name TEXT NOT NULL, bookmark TEXT NOT NULL, advanced_at BIGINT NOT NULL, PRIMARY KEY (tenant, name) )
CREATE TABLE zapdb_gate ( unused INTEGER )
CREATE TABLE zapdb_history_eras ( tenant BIGINT NOT NULL, timeline TEXT NOT NULL, table_number BIGINT NOT NULL, era BIGINT NOT NULL, first_moment BIGINT NOT NULL, last_moment BIGINT, revision BIGINT NOT NULL, layout_revision BIGINT NOT NULL, live_rows BIGINT NOT NULL, changes BIGINT NOT NULL, state TEXT NOT NULL, doubt TEXT, PRIMARY KEY (tenant, timeline, table_number, era) )
CREATE TABLE zapdb_history_erasures ( tenant BIGINT NOT NULL, id TEXT NOT NULL, table_number BIGINT NOT NULL, "key" BLOB, fields TEXT NOT NULL, resume_after BLOB, counted TEXT, key_sha256 BLOB NOT NULL, proof TEXT NOT NULL, requested_at BIGINT NOT NULL, finished_at BIGINT, PRIMARY KEY (tenant, id) )
CREATE TABLE zapdb_history_files ( tenant BIGINT NOT NULL, timeline TEXT NOT NULL, id TEXT NOT NULL, table_number BIGINT NOT NULL, era BIGINT NOT NULL, kind TEXT NOT NULL, first_moment BIGINT NOT NULL, last_moment BIGINT NOT NULL, revision BIGINT NOT NULL, rows BIGINT NOT NULL, size_bytes BIGINT NOT NULL, sha256 BLOB NOT NULL, key_lower BLOB, key_upper BLOB, directory TEXT, state TEXT NOT NULL, retired_at BIGINT, PRIMARY KEY (tenant, timeline, id) )
CREATE INDEX zapdb_history_files_by_table ON zapdb_history_files (tenant, timeline, table_number, era)
CREATE TABLE zapdb_history_stores ( tenant BIGINT NOT NULL, timeline TEXT NOT NULL, directory TEXT NOT NULL, format BIGINT NOT NULL, state TEXT NOT NULL, begins BIGINT NOT NULL, ends BIGINT NOT NULL, ends_bookmark TEXT NOT NULL, visible_at BIGINT NOT NULL, purged_before BIGINT NOT NULL, started_at BIGINT NOT NULL, flushed_at BIGINT NOT NULL, commits BIGINT NOT NULL, problem TEXT, former_directories TEXT NOT NULL, PRIMARY KEY (tenant, timeline) )
CREATE TABLE zapdb_incarnations ( number BIGINT NOT NULL, server TEXT NOT NULL, began_by BIGINT NOT NULL, began_at BIGINT NOT NULL, PRIMARY KEY (number) )
CREATE TABLE zapdb_leases ( name TEXT NOT NULL, owner TEXT NOT NULL, epoch BIGINT NOT NULL, since BIGINT NOT NULL, expires_at BIGINT NOT NULL, PRIMARY KEY (name) )
CREATE TABLE zapdb_migrations ( id BIGINT NOT NULL, parent BIGINT NOT NULL, number BIGINT NOT NULL, name TEXT NOT NULL, summary TEXT NOT NULL, state TEXT NOT NULL, digest TEXT NOT NULL, structure BLOB NOT NULL, numbers BLOB NOT NULL, source_hash BLOB NOT NULL, stored_at BIGINT NOT NULL, stored_by TEXT NOT NULL, rolled_back_at BIGINT, rolled_back_by TEXT, PRIMARY KEY (id) )
CREATE TABLE zapdb_probes ( job TEXT NOT NULL, worker TEXT NOT NULL, owner TEXT NOT NULL, latency_us BIGINT NOT NULL, share_percent BIGINT NOT NULL, probed_at BIGINT NOT NULL, PRIMARY KEY (job, worker) )
CREATE TABLE zapdb_quarantine ( job TEXT NOT NULL, "key" BLOB NOT NULL, tenant BIGINT NOT NULL, reason TEXT NOT NULL, found_at BIGINT NOT NULL, PRIMARY KEY (job, "key") )
CREATE TABLE zapdb_range_revisions ( tenant BIGINT NOT NULL, table_number BIGINT NOT NULL, revision BIGINT NOT NULL, lower BLOB NOT NULL, upper BLOB, PRIMARY KEY (tenant, table_number, revision, lower) )
CREATE TABLE zapdb_ranges ( job TEXT NOT NULL, range BIGINT NOT NULL, lower BLOB, upper BLOB, state TEXT NOT NULL, fence BIGINT NOT NULL, owner TEXT NOT NULL, expires_at BIGINT NOT NULL, resume_after BLOB, read BIGINT NOT NULL, written BIGINT NOT NULL, conflicts BIGINT NOT NULL, PRIMARY KEY (job, range) )
CREATE TABLE zapdb_requests ( principal TEXT NOT NULL, "key" TEXT NOT NULL, request BLOB NOT NULL, owner TEXT NOT NULL, answer BLOB, expires_at BIGINT NOT NULL, PRIMARY KEY (principal, "key") )
CREATE TABLE zapdb_schema_history ( tenant BIGINT NOT NULL, table_number BIGINT NOT NULL, revision BIGINT NOT NULL, event TEXT NOT NULL, fingerprint BLOB NOT NULL, migrated_at BIGINT NOT NULL, migrated_by TEXT NOT NULL, position BIGINT NOT NULL, migration BIGINT NOT NULL, record_format BIGINT NOT NULL, layout_revision BIGINT NOT NULL, first_layout_revision BIGINT NOT NULL, table_schema BLOB NOT NULL, PRIMARY KEY (tenant, table_number, revision) )
CREATE TABLE zapdb_schemas ( table_number BIGINT NOT NULL, migration BIGINT NOT NULL, content BLOB NOT NULL, PRIMARY KEY (table_number, migration) )
CREATE TABLE zapdb_sequences ( tenant BIGINT NOT NULL, field BIGINT NOT NULL, block_after BIGINT NOT NULL, last BIGINT NOT NULL, PRIMARY KEY (tenant, field) )
CREATE TABLE zapdb_stamps ( tenant BIGINT NOT NULL, number BIGINT NOT NULL, snapshot TEXT NOT NULL, stamped_at BIGINT NOT NULL, moment BIGINT NOT NULL, visible_at BIGINT NOT NULL, PRIMARY KEY (tenant, number) )
CREATE TABLE zapdb_transactions ( tenant BIGINT NOT NULL, number BIGINT NOT NULL, commit_order BIGINT NOT NULL, principal TEXT NOT NULL, made_at BIGINT NOT NULL, PRIMARY KEY (tenant, number) )
CREATE TABLE zapdb_zones ( number BIGINT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (number), UNIQUE (name) )
CREATE TABLE IF NOT EXISTS zapdb_records_1 (tenant INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tenant, key)) WITHOUT ROWID
CREATE TABLE zapdb_entries_1 (tenant INTEGER NOT NULL, key BLOB NOT NULL, record BLOB NOT NULL, PRIMARY KEY (tenant, key, record)) WITHOUT ROWID
CREATE TABLE zapdb_entries_1 (tenant INTEGER NOT NULL, key BLOB NOT NULL, record BLOB NOT NULL, PRIMARY KEY (tenant, key)) WITHOUT ROWID
