// The queue's tables. Internal.
#pragma once

#include "queue/database.h"

namespace innkeeper::queue {

// `jobs` holds the columns that lists and the runner read, so that 100,000 rows take a few megabytes; long
// values stand in other tables. Commands and environments are stored once, however many jobs use them.
// `unmet` counts the needs that have not ended. The indices hold the jobs that could start now, in the order
// of their start. Jobs with GPUs are indexed by `shape`: requests of one shape are granted or refused alike.
// `endings` keeps the final states of pruned jobs `first` to `last`.
inline constexpr const char* kTables = R"sql(
CREATE TABLE commands(
  id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, directory BLOB NOT NULL, words BLOB NOT NULL,
  runs INTEGER NOT NULL DEFAULT 0, peak_memory INTEGER NOT NULL DEFAULT 0,
  peak_host INTEGER NOT NULL DEFAULT 0);
CREATE INDEX commands_hash ON commands(hash);
CREATE TABLE environments(
  id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, bytes BLOB NOT NULL, limits BLOB NOT NULL);
CREATE INDEX environments_hash ON environments(hash);
CREATE TABLE jobs(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  array INTEGER NOT NULL, state INTEGER NOT NULL DEFAULT 0, held INTEGER NOT NULL DEFAULT 0,
  how INTEGER NOT NULL DEFAULT 0, code INTEGER NOT NULL DEFAULT 0, priority INTEGER NOT NULL,
  gpus INTEGER NOT NULL, memory INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0,
  unmet INTEGER NOT NULL, added INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0,
  ended INTEGER NOT NULL DEFAULT 0, title BLOB NOT NULL,
  slots INTEGER NOT NULL, retries INTEGER NOT NULL, cancel INTEGER NOT NULL DEFAULT 0,
  command INTEGER NOT NULL, environment INTEGER NOT NULL, shape INTEGER NOT NULL);
CREATE INDEX jobs_ready_gpus ON jobs(shape, priority DESC, id)
  WHERE state = 0 AND held = 0 AND unmet = 0 AND gpus > 0;
CREATE INDEX jobs_ready_cpu ON jobs(priority DESC, id)
  WHERE state = 0 AND held = 0 AND unmet = 0 AND gpus = 0;
CREATE INDEX jobs_running ON jobs(id) WHERE state = 1;
CREATE INDEX jobs_array ON jobs(array) WHERE array > 0;
CREATE INDEX jobs_ended ON jobs(ended, id) WHERE state > 1;
CREATE TABLE endings(
  first INTEGER PRIMARY KEY, last INTEGER NOT NULL, state INTEGER NOT NULL, array INTEGER NOT NULL);
CREATE TABLE details(
  job INTEGER PRIMARY KEY, variables BLOB NOT NULL, by_mode INTEGER NOT NULL, exclusive INTEGER NOT NULL,
  time_limit_ms INTEGER NOT NULL, grace_ms INTEGER NOT NULL, linger INTEGER NOT NULL, notify BLOB NOT NULL,
  reason BLOB NOT NULL DEFAULT x'');
CREATE TABLE needs(
  job INTEGER NOT NULL, needs INTEGER NOT NULL, any_end INTEGER NOT NULL, PRIMARY KEY(job, needs))
  WITHOUT ROWID;
CREATE INDEX needs_needs ON needs(needs);
CREATE TABLE attempts(
  job INTEGER NOT NULL, number INTEGER NOT NULL, started INTEGER NOT NULL, ended INTEGER NOT NULL DEFAULT 0,
  gpus BLOB NOT NULL, how INTEGER NOT NULL, code INTEGER NOT NULL DEFAULT 0,
  peak_memory INTEGER NOT NULL DEFAULT 0, peak_host INTEGER NOT NULL DEFAULT 0, boot BLOB NOT NULL,
  PRIMARY KEY(job, number)) WITHOUT ROWID;
CREATE TABLE settings(name BLOB PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
)sql";

// Upgrades the tables of version `from` to the next version (upgrade.cc).
Status upgrade(Database& database, int from);

inline constexpr Schema kSchema = {
    .application = 0x494e4b51,  // "INKQ"
    .version = 5,
    .tables = kTables,
    .upgrade = upgrade,
};

}  // namespace innkeeper::queue
