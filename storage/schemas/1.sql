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
	labels TEXT,
	max_tokens INTEGER NOT NULL,
	too_long TEXT NOT NULL,
	training TEXT NOT NULL,
	"key" BLOB NOT NULL,
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
	CONSTRAINT labels_is_json CHECK (labels IS NULL OR (json_valid(labels) AND json_type(labels) = 'array')),
	CONSTRAINT max_tokens_in_range CHECK (typeof(max_tokens) = 'integer' AND max_tokens > 0),
	CONSTRAINT too_long_is_known CHECK (too_long IN ('refuse', 'cut')),
	CONSTRAINT training_is_json CHECK (json_valid(training) AND json_type(training) = 'object'),
	CONSTRAINT key_is_32_bytes CHECK (typeof(key) = 'blob' AND length(key) = 32),
	CONSTRAINT created_at_is_time CHECK (typeof(created_at) = 'integer' AND created_at > 0),
	FOREIGN KEY(client_id) REFERENCES clients (id)
);

CREATE TABLE clients (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,
	token_hash BLOB NOT NULL,
	created_at INTEGER NOT NULL,
	CONSTRAINT name_is_text CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 64 AND instr(name, char(0)) = 0),
	CONSTRAINT token_hash_is_sha256 CHECK (typeof(token_hash) = 'blob' AND length(token_hash) = 32),
	CONSTRAINT created_at_is_time CHECK (typeof(created_at) = 'integer' AND created_at > 0),
	UNIQUE (name),
	UNIQUE (token_hash)
);

CREATE TABLE examples (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	adapter_id INTEGER NOT NULL,
	input TEXT NOT NULL,
	label TEXT NOT NULL,
	split TEXT NOT NULL,
	external_id TEXT,
	status TEXT NOT NULL,
	text_hash BLOB NOT NULL,
	created_at INTEGER NOT NULL,
	changed_at INTEGER NOT NULL,
	UNIQUE (adapter_id, external_id),
	CONSTRAINT input_is_text CHECK (typeof(input) = 'text' AND length(input) BETWEEN 1 AND 100000 AND instr(input, char(0)) = 0),
	CONSTRAINT label_is_text CHECK (typeof(label) = 'text' AND length(label) BETWEEN 1 AND 100000 AND instr(label, char(0)) = 0),
	CONSTRAINT split_is_known CHECK (split IN ('train', 'holdout')),
	CONSTRAINT external_id_is_text CHECK (external_id IS NULL OR (typeof(external_id) = 'text' AND length(external_id) BETWEEN 1 AND 200 AND instr(external_id, char(0)) = 0)),
	CONSTRAINT status_is_known CHECK (status IN ('pending', 'used')),
	CONSTRAINT text_hash_is_sha256 CHECK (typeof(text_hash) = 'blob' AND length(text_hash) = 32),
	CONSTRAINT created_at_is_time CHECK (typeof(created_at) = 'integer' AND created_at > 0),
	CONSTRAINT changed_at_is_time CHECK (typeof(changed_at) = 'integer' AND changed_at > 0),
	FOREIGN KEY(adapter_id) REFERENCES adapters (id)
);

CREATE TABLE runs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	adapter_id INTEGER NOT NULL,
	status TEXT NOT NULL,
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
	created_at INTEGER NOT NULL,
	started_at INTEGER,
	finished_at INTEGER,
	CONSTRAINT status_is_known CHECK (status IN ('queued', 'running', 'interrupted', 'completed', 'failed')),
	CONSTRAINT step_in_range CHECK (typeof(step) = 'integer' AND step >= 0),
	CONSTRAINT total_steps_in_range CHECK (total_steps IS NULL OR (typeof(total_steps) = 'integer' AND total_steps > 0)),
	CONSTRAINT engine_is_json CHECK (engine IS NULL OR (json_valid(engine) AND json_type(engine) = 'object')),
	CONSTRAINT exact_resume_is_flag CHECK (exact_resume IN (0, 1)),
	CONSTRAINT losses_is_json CHECK (json_valid(losses) AND json_type(losses) = 'array'),
	CONSTRAINT created_at_is_time CHECK (typeof(created_at) = 'integer' AND created_at > 0),
	CONSTRAINT started_at_is_time CHECK (started_at IS NULL OR (typeof(started_at) = 'integer' AND started_at > 0)),
	CONSTRAINT finished_at_is_time CHECK (finished_at IS NULL OR (typeof(finished_at) = 'integer' AND finished_at > 0)),
	FOREIGN KEY(adapter_id) REFERENCES adapters (id)
);

CREATE TABLE versions (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	adapter_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	run_id INTEGER NOT NULL,
	path TEXT NOT NULL,
	metrics TEXT NOT NULL,
	manifest TEXT NOT NULL,
	verdict TEXT NOT NULL,
	verdict_reason TEXT NOT NULL,
	active BOOLEAN NOT NULL,
	created_at INTEGER NOT NULL,
	UNIQUE (adapter_id, number),
	CONSTRAINT number_in_range CHECK (typeof(number) = 'integer' AND number > 0),
	CONSTRAINT path_is_text CHECK (typeof(path) = 'text' AND length(path) BETWEEN 1 AND 300 AND instr(path, char(0)) = 0),
	CONSTRAINT metrics_is_json CHECK (json_valid(metrics) AND json_type(metrics) = 'object'),
	CONSTRAINT manifest_is_json CHECK (json_valid(manifest) AND json_type(manifest) = 'object'),
	CONSTRAINT verdict_is_known CHECK (verdict IN ('promoted', 'rejected', 'insufficient')),
	CONSTRAINT verdict_reason_is_text CHECK (typeof(verdict_reason) = 'text' AND length(verdict_reason) BETWEEN 1 AND 1000 AND instr(verdict_reason, char(0)) = 0),
	CONSTRAINT active_is_flag CHECK (active IN (0, 1)),
	CONSTRAINT created_at_is_time CHECK (typeof(created_at) = 'integer' AND created_at > 0),
	FOREIGN KEY(adapter_id) REFERENCES adapters (id),
	UNIQUE (run_id),
	FOREIGN KEY(run_id) REFERENCES runs (id)
);

CREATE INDEX examples_by_split ON examples (adapter_id, split, status);

CREATE INDEX examples_by_text ON examples (adapter_id, text_hash);

CREATE UNIQUE INDEX one_active_version_per_adapter ON versions (adapter_id) WHERE active = 1;

CREATE UNIQUE INDEX one_running_run ON runs (status) WHERE status = 'running';

CREATE UNIQUE INDEX one_unfinished_run_per_adapter ON runs (adapter_id) WHERE status IN ('queued', 'running', 'interrupted');

CREATE INDEX runs_by_adapter ON runs (adapter_id);
