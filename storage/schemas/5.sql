CREATE TABLE adapters (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	client_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	base_model TEXT NOT NULL,
	base_hash TEXT NOT NULL,
	method TEXT NOT NULL,
	rank INTEGER NOT NULL,
	alpha FLOAT NOT NULL,
	targets TEXT NOT NULL,
	use_rslora BOOLEAN NOT NULL,
	top_layers INTEGER,
	labels TEXT,
	max_tokens INTEGER NOT NULL,
	too_long TEXT NOT NULL,
	training TEXT NOT NULL,
	night TEXT NOT NULL,
	"key" BLOB NOT NULL,
	keep_days INTEGER,
	max_examples INTEGER,
	keep_versions INTEGER,
	last_version INTEGER NOT NULL,
	revision INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	UNIQUE (client_id, name),
	CONSTRAINT name_is_text CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 64 AND instr(name, char(0)) = 0),
	CONSTRAINT base_model_is_text CHECK (typeof(base_model) = 'text' AND length(base_model) BETWEEN 1 AND 64 AND instr(base_model, char(0)) = 0),
	CONSTRAINT base_hash_is_text CHECK (typeof(base_hash) = 'text' AND length(base_hash) BETWEEN 1 AND 128 AND instr(base_hash, char(0)) = 0),
	CONSTRAINT method_is_text CHECK (typeof(method) = 'text' AND length(method) BETWEEN 1 AND 32 AND instr(method, char(0)) = 0),
	CONSTRAINT rank_in_range CHECK (typeof(rank) = 'integer' AND rank BETWEEN 1 AND 64),
	CONSTRAINT alpha_in_range CHECK (typeof(alpha) = 'real' AND alpha > 0 AND alpha <= 1e4),
	CONSTRAINT targets_is_json CHECK (json_valid(targets) AND json_type(targets) = 'array'),
	CONSTRAINT use_rslora_is_flag CHECK (use_rslora IN (0, 1)),
	CONSTRAINT top_layers_in_range CHECK (top_layers IS NULL OR (typeof(top_layers) = 'integer' AND top_layers >= 1)),
	CONSTRAINT labels_is_json CHECK (labels IS NULL OR (json_valid(labels) AND json_type(labels) = 'array')),
	CONSTRAINT max_tokens_in_range CHECK (typeof(max_tokens) = 'integer' AND max_tokens > 0),
	CONSTRAINT too_long_is_known CHECK (too_long IN ('refuse', 'cut')),
	CONSTRAINT training_is_json CHECK (json_valid(training) AND json_type(training) = 'object'),
	CONSTRAINT night_is_json CHECK (json_valid(night) AND json_type(night) = 'object'),
	CONSTRAINT key_is_32_bytes CHECK (typeof(key) = 'blob' AND length(key) = 32),
	CONSTRAINT keep_days_in_range CHECK (keep_days IS NULL OR (typeof(keep_days) = 'integer' AND keep_days >= 1)),
	CONSTRAINT max_examples_in_range CHECK (max_examples IS NULL OR (typeof(max_examples) = 'integer' AND max_examples >= 1)),
	CONSTRAINT keep_versions_in_range CHECK (keep_versions IS NULL OR (typeof(keep_versions) = 'integer' AND keep_versions >= 1)),
	CONSTRAINT last_version_in_range CHECK (typeof(last_version) = 'integer' AND last_version >= 0),
	CONSTRAINT revision_in_range CHECK (typeof(revision) = 'integer' AND revision >= 1),
	CONSTRAINT created_at_is_time CHECK (typeof(created_at) = 'integer' AND created_at > 0),
	FOREIGN KEY(client_id) REFERENCES clients (id)
);

CREATE TABLE clients (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,
	token_hash BLOB,
	key_id TEXT NOT NULL,
	"key" BLOB NOT NULL,
	scopes TEXT NOT NULL,
	examples_per_day INTEGER,
	most_bytes INTEGER,
	most_pending INTEGER,
	created_at INTEGER NOT NULL,
	paired_at INTEGER NOT NULL,
	CONSTRAINT name_is_text CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 64 AND instr(name, char(0)) = 0),
	CONSTRAINT token_hash_is_sha256 CHECK (token_hash IS NULL OR (typeof(token_hash) = 'blob' AND length(token_hash) = 32)),
	CONSTRAINT key_id_is_text CHECK (typeof(key_id) = 'text' AND length(key_id) BETWEEN 1 AND 64 AND instr(key_id, char(0)) = 0),
	CONSTRAINT key_is_32_bytes CHECK (typeof(key) = 'blob' AND length(key) = 32),
	CONSTRAINT scopes_is_json CHECK (json_valid(scopes) AND json_type(scopes) = 'array'),
	CONSTRAINT examples_per_day_in_range CHECK (examples_per_day IS NULL OR (typeof(examples_per_day) = 'integer' AND examples_per_day >= 1)),
	CONSTRAINT most_bytes_in_range CHECK (most_bytes IS NULL OR (typeof(most_bytes) = 'integer' AND most_bytes >= 1)),
	CONSTRAINT most_pending_in_range CHECK (most_pending IS NULL OR (typeof(most_pending) = 'integer' AND most_pending >= 1)),
	CONSTRAINT created_at_is_time CHECK (typeof(created_at) = 'integer' AND created_at > 0),
	CONSTRAINT paired_at_is_time CHECK (typeof(paired_at) = 'integer' AND paired_at > 0),
	UNIQUE (name),
	UNIQUE (token_hash),
	UNIQUE (key_id)
);

CREATE TABLE daily_usage (
	client_id INTEGER NOT NULL,
	day INTEGER NOT NULL,
	examples INTEGER NOT NULL,
	PRIMARY KEY (client_id, day),
	CONSTRAINT examples_in_range CHECK (typeof(examples) = 'integer' AND examples >= 0),
	FOREIGN KEY(client_id) REFERENCES clients (id)
)
 WITHOUT ROWID;

CREATE TABLE erasures (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	client_id INTEGER,
	what TEXT NOT NULL,
	examples INTEGER NOT NULL,
	paths TEXT NOT NULL,
	requested_at INTEGER NOT NULL,
	erased_at INTEGER,
	CONSTRAINT what_is_known CHECK (what IN ('examples', 'adapter', 'client', 'version', 'retention', 'correction')),
	CONSTRAINT examples_in_range CHECK (typeof(examples) = 'integer' AND examples >= 0),
	CONSTRAINT paths_is_json CHECK (json_valid(paths) AND json_type(paths) = 'array'),
	CONSTRAINT requested_at_is_time CHECK (typeof(requested_at) = 'integer' AND requested_at > 0),
	CONSTRAINT erased_at_is_time CHECK (erased_at IS NULL OR (typeof(erased_at) = 'integer' AND erased_at > 0))
);

CREATE TABLE example_counts (
	adapter_id INTEGER NOT NULL,
	split TEXT NOT NULL,
	status TEXT NOT NULL,
	examples INTEGER NOT NULL,
	bytes INTEGER NOT NULL,
	PRIMARY KEY (adapter_id, split, status),
	CONSTRAINT examples_in_range CHECK (typeof(examples) = 'integer' AND examples >= 0),
	CONSTRAINT bytes_in_range CHECK (typeof(bytes) = 'integer' AND bytes >= 0),
	FOREIGN KEY(adapter_id) REFERENCES adapters (id)
)
 WITHOUT ROWID;

CREATE TABLE examples (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	adapter_id INTEGER NOT NULL,
	input TEXT,
	label TEXT,
	split TEXT NOT NULL,
	external_id TEXT,
	status TEXT NOT NULL,
	text_hash BLOB,
	created_at INTEGER NOT NULL,
	changed_at INTEGER NOT NULL,
	UNIQUE (adapter_id, external_id),
	CONSTRAINT input_is_text CHECK (input IS NULL OR (typeof(input) = 'text' AND length(input) BETWEEN 1 AND 100000 AND instr(input, char(0)) = 0)),
	CONSTRAINT label_is_text CHECK (label IS NULL OR (typeof(label) = 'text' AND length(label) BETWEEN 1 AND 100000 AND instr(label, char(0)) = 0)),
	CONSTRAINT split_is_known CHECK (split IN ('train', 'holdout')),
	CONSTRAINT external_id_is_text CHECK (external_id IS NULL OR (typeof(external_id) = 'text' AND length(external_id) BETWEEN 1 AND 200 AND instr(external_id, char(0)) = 0)),
	CONSTRAINT status_is_known CHECK (status IN ('pending', 'used', 'expired')),
	CONSTRAINT text_hash_is_sha256 CHECK (text_hash IS NULL OR (typeof(text_hash) = 'blob' AND length(text_hash) = 32)),
	CONSTRAINT only_expired_have_no_text CHECK ((status = 'expired') = (input IS NULL) AND (status = 'expired') = (label IS NULL) AND (status = 'expired') = (text_hash IS NULL)),
	CONSTRAINT created_at_is_time CHECK (typeof(created_at) = 'integer' AND created_at > 0),
	CONSTRAINT changed_at_is_time CHECK (typeof(changed_at) = 'integer' AND changed_at > 0),
	FOREIGN KEY(adapter_id) REFERENCES adapters (id)
);

CREATE TABLE history (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	at INTEGER NOT NULL,
	client_id INTEGER,
	adapter TEXT,
	run_id INTEGER,
	kind TEXT NOT NULL,
	message TEXT NOT NULL,
	CONSTRAINT kind_is_text CHECK (typeof(kind) = 'text' AND length(kind) BETWEEN 1 AND 40 AND instr(kind, char(0)) = 0),
	CONSTRAINT message_is_text CHECK (typeof(message) = 'text' AND length(message) BETWEEN 1 AND 1000 AND instr(message, char(0)) = 0),
	CONSTRAINT at_is_time CHECK (typeof(at) = 'integer' AND at > 0),
	FOREIGN KEY(client_id) REFERENCES clients (id)
);

CREATE TABLE idempotency_records (
	id INTEGER NOT NULL,
	client_id INTEGER NOT NULL,
	adapter_id INTEGER,
	"key" TEXT NOT NULL,
	digest BLOB,
	status INTEGER NOT NULL,
	location TEXT,
	answer TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (client_id, "key"),
	CONSTRAINT key_is_text CHECK (typeof(key) = 'text' AND length(key) BETWEEN 1 AND 200 AND instr(key, char(0)) = 0),
	CONSTRAINT digest_is_sha256 CHECK (digest IS NULL OR (typeof(digest) = 'blob' AND length(digest) = 32)),
	CONSTRAINT status_in_range CHECK (typeof(status) = 'integer' AND status >= 200),
	CONSTRAINT location_is_text CHECK (location IS NULL OR (typeof(location) = 'text' AND length(location) BETWEEN 1 AND 300 AND instr(location, char(0)) = 0)),
	CONSTRAINT answer_is_json CHECK (json_valid(answer) AND json_type(answer) = 'object'),
	CONSTRAINT created_at_is_time CHECK (typeof(created_at) = 'integer' AND created_at > 0),
	FOREIGN KEY(client_id) REFERENCES clients (id),
	FOREIGN KEY(adapter_id) REFERENCES adapters (id)
);

CREATE TABLE night_usage (
	night_id INTEGER NOT NULL,
	adapter_id INTEGER NOT NULL,
	seconds FLOAT NOT NULL,
	PRIMARY KEY (night_id, adapter_id),
	CONSTRAINT seconds_in_range CHECK (typeof(seconds) = 'real' AND seconds >= 0),
	FOREIGN KEY(night_id) REFERENCES nights (id),
	FOREIGN KEY(adapter_id) REFERENCES adapters (id)
)
 WITHOUT ROWID;

CREATE TABLE nights (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	"key" TEXT NOT NULL,
	opened_at INTEGER NOT NULL,
	closed_at INTEGER,
	first_level FLOAT,
	last_level FLOAT,
	hottest FLOAT,
	CONSTRAINT key_is_text CHECK (typeof(key) = 'text' AND length(key) BETWEEN 1 AND 40 AND instr(key, char(0)) = 0),
	CONSTRAINT opened_at_is_time CHECK (typeof(opened_at) = 'integer' AND opened_at > 0),
	CONSTRAINT closed_at_is_time CHECK (closed_at IS NULL OR (typeof(closed_at) = 'integer' AND closed_at > 0)),
	UNIQUE ("key")
);

CREATE TABLE runs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	adapter_id INTEGER NOT NULL,
	status TEXT NOT NULL,
	wanted TEXT,
	origin TEXT NOT NULL,
	in_window BOOLEAN NOT NULL,
	override BOOLEAN NOT NULL,
	warm_start INTEGER,
	forgotten INTEGER NOT NULL,
	phase TEXT,
	step INTEGER NOT NULL,
	total_steps INTEGER,
	loss FLOAT,
	learning_rate FLOAT,
	epoch FLOAT,
	evaluated INTEGER,
	evaluating_total INTEGER,
	resumed_from INTEGER,
	engine TEXT,
	error TEXT,
	exact_resume BOOLEAN,
	exact_resume_reason TEXT,
	losses TEXT NOT NULL,
	checkpoint_step INTEGER,
	kills INTEGER NOT NULL,
	crashes INTEGER NOT NULL,
	crash_step INTEGER,
	halvings INTEGER NOT NULL,
	not_before INTEGER,
	worked_at INTEGER,
	created_at INTEGER NOT NULL,
	started_at INTEGER,
	finished_at INTEGER,
	CONSTRAINT status_is_known CHECK (status IN ('queued', 'running', 'paused', 'interrupted', 'completed', 'failed', 'cancelled')),
	CONSTRAINT wanted_is_known CHECK (wanted IN ('pause', 'cancel', 'resume')),
	CONSTRAINT origin_is_known CHECK (origin IN ('request', 'night')),
	CONSTRAINT in_window_is_flag CHECK (in_window IN (0, 1)),
	CONSTRAINT override_is_flag CHECK (override IN (0, 1)),
	CONSTRAINT warm_start_in_range CHECK (warm_start IS NULL OR (typeof(warm_start) = 'integer' AND warm_start >= 1)),
	CONSTRAINT forgotten_in_range CHECK (typeof(forgotten) = 'integer' AND forgotten >= 0),
	CONSTRAINT step_in_range CHECK (typeof(step) = 'integer' AND step >= 0),
	CONSTRAINT checkpoint_step_in_range CHECK (checkpoint_step IS NULL OR (typeof(checkpoint_step) = 'integer' AND checkpoint_step >= 0)),
	CONSTRAINT kills_in_range CHECK (typeof(kills) = 'integer' AND kills >= 0),
	CONSTRAINT crashes_in_range CHECK (typeof(crashes) = 'integer' AND crashes >= 0),
	CONSTRAINT crash_step_in_range CHECK (crash_step IS NULL OR (typeof(crash_step) = 'integer' AND crash_step >= 0)),
	CONSTRAINT halvings_in_range CHECK (typeof(halvings) = 'integer' AND halvings >= 0),
	CONSTRAINT not_before_is_time CHECK (not_before IS NULL OR (typeof(not_before) = 'integer' AND not_before > 0)),
	CONSTRAINT worked_at_is_time CHECK (worked_at IS NULL OR (typeof(worked_at) = 'integer' AND worked_at > 0)),
	CONSTRAINT total_steps_in_range CHECK (total_steps IS NULL OR (typeof(total_steps) = 'integer' AND total_steps > 0)),
	CONSTRAINT engine_is_json CHECK (engine IS NULL OR (json_valid(engine) AND json_type(engine) = 'object')),
	CONSTRAINT exact_resume_is_flag CHECK (exact_resume IN (0, 1)),
	CONSTRAINT losses_is_json CHECK (json_valid(losses) AND json_type(losses) = 'array'),
	CONSTRAINT created_at_is_time CHECK (typeof(created_at) = 'integer' AND created_at > 0),
	CONSTRAINT started_at_is_time CHECK (started_at IS NULL OR (typeof(started_at) = 'integer' AND started_at > 0)),
	CONSTRAINT finished_at_is_time CHECK (finished_at IS NULL OR (typeof(finished_at) = 'integer' AND finished_at > 0)),
	FOREIGN KEY(adapter_id) REFERENCES adapters (id)
);

CREATE TABLE schedule (
	id INTEGER NOT NULL,
	windows TEXT NOT NULL,
	revision INTEGER NOT NULL,
	changed_at INTEGER NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT one_row CHECK (id = 1),
	CONSTRAINT windows_is_json CHECK (json_valid(windows) AND json_type(windows) = 'array'),
	CONSTRAINT revision_in_range CHECK (typeof(revision) = 'integer' AND revision >= 1),
	CONSTRAINT changed_at_is_time CHECK (typeof(changed_at) = 'integer' AND changed_at > 0)
);

CREATE TABLE training_pause (
	id INTEGER NOT NULL,
	since INTEGER NOT NULL,
	until INTEGER,
	PRIMARY KEY (id),
	CONSTRAINT one_row CHECK (id = 1),
	CONSTRAINT since_is_time CHECK (typeof(since) = 'integer' AND since > 0),
	CONSTRAINT until_is_time CHECK (until IS NULL OR (typeof(until) = 'integer' AND until > 0))
);

CREATE TABLE versions (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	adapter_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	run_id INTEGER,
	path TEXT NOT NULL,
	metrics TEXT NOT NULL,
	manifest TEXT NOT NULL,
	verdict TEXT NOT NULL,
	verdict_reason TEXT NOT NULL,
	active BOOLEAN NOT NULL,
	activated_at INTEGER,
	activated_by TEXT,
	seen TEXT,
	seen_deleted INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	UNIQUE (adapter_id, number),
	CONSTRAINT number_in_range CHECK (typeof(number) = 'integer' AND number >= 1),
	CONSTRAINT path_is_text CHECK (typeof(path) = 'text' AND length(path) BETWEEN 1 AND 300 AND instr(path, char(0)) = 0),
	CONSTRAINT metrics_is_json CHECK (json_valid(metrics) AND json_type(metrics) = 'object'),
	CONSTRAINT manifest_is_json CHECK (json_valid(manifest) AND json_type(manifest) = 'object'),
	CONSTRAINT verdict_is_known CHECK (verdict IN ('promoted', 'rejected', 'insufficient', 'imported')),
	CONSTRAINT only_imported_have_no_run CHECK ((verdict = 'imported') = (run_id IS NULL)),
	CONSTRAINT verdict_reason_is_text CHECK (typeof(verdict_reason) = 'text' AND length(verdict_reason) BETWEEN 1 AND 1000 AND instr(verdict_reason, char(0)) = 0),
	CONSTRAINT active_is_flag CHECK (active IN (0, 1)),
	CONSTRAINT activated_at_is_time CHECK (activated_at IS NULL OR (typeof(activated_at) = 'integer' AND activated_at > 0)),
	CONSTRAINT activated_by_is_text CHECK (activated_by IS NULL OR (typeof(activated_by) = 'text' AND length(activated_by) BETWEEN 1 AND 64 AND instr(activated_by, char(0)) = 0)),
	CONSTRAINT seen_is_json CHECK (seen IS NULL OR (json_valid(seen) AND json_type(seen) = 'array')),
	CONSTRAINT seen_deleted_in_range CHECK (typeof(seen_deleted) = 'integer' AND seen_deleted >= 0),
	CONSTRAINT created_at_is_time CHECK (typeof(created_at) = 'integer' AND created_at > 0),
	FOREIGN KEY(adapter_id) REFERENCES adapters (id),
	UNIQUE (run_id),
	FOREIGN KEY(run_id) REFERENCES runs (id)
);

CREATE INDEX examples_by_adapter ON examples (adapter_id, id);

CREATE INDEX examples_by_age ON examples (adapter_id, created_at) WHERE status <> 'expired';

CREATE INDEX examples_by_text ON examples (adapter_id, text_hash);

CREATE INDEX history_by_client ON history (client_id, id);

CREATE INDEX idempotency_records_by_adapter ON idempotency_records (adapter_id);

CREATE INDEX idempotency_records_by_age ON idempotency_records (created_at);

CREATE UNIQUE INDEX one_active_version_per_adapter ON versions (adapter_id) WHERE active = 1;

CREATE UNIQUE INDEX one_running_run ON runs (status) WHERE status = 'running';

CREATE UNIQUE INDEX one_unfinished_run_per_adapter ON runs (adapter_id) WHERE status IN ('queued', 'running', 'paused', 'interrupted');

CREATE INDEX runs_by_adapter ON runs (adapter_id);

CREATE TRIGGER examples_counted_in AFTER INSERT ON examples BEGIN
    INSERT INTO example_counts (adapter_id, split, status, examples, bytes)
    VALUES (NEW.adapter_id, NEW.split, NEW.status, 1, coalesce(length(CAST(NEW.input AS BLOB)), 0) + coalesce(length(CAST(NEW.label AS BLOB)), 0))
    ON CONFLICT (adapter_id, split, status) DO UPDATE
    SET examples = examples + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER examples_counted_out AFTER DELETE ON examples BEGIN
    UPDATE example_counts SET examples = examples - 1, bytes = bytes - (coalesce(length(CAST(OLD.input AS BLOB)), 0) + coalesce(length(CAST(OLD.label AS BLOB)), 0))
    WHERE adapter_id = OLD.adapter_id AND split = OLD.split AND status = OLD.status;
END;

CREATE TRIGGER examples_recounted AFTER UPDATE OF adapter_id, split, status, input, label ON examples BEGIN
    UPDATE example_counts SET examples = examples - 1, bytes = bytes - (coalesce(length(CAST(OLD.input AS BLOB)), 0) + coalesce(length(CAST(OLD.label AS BLOB)), 0))
    WHERE adapter_id = OLD.adapter_id AND split = OLD.split AND status = OLD.status;
    INSERT INTO example_counts (adapter_id, split, status, examples, bytes)
    VALUES (NEW.adapter_id, NEW.split, NEW.status, 1, coalesce(length(CAST(NEW.input AS BLOB)), 0) + coalesce(length(CAST(NEW.label AS BLOB)), 0))
    ON CONFLICT (adapter_id, split, status) DO UPDATE
    SET examples = examples + 1, bytes = bytes + excluded.bytes;
END;
