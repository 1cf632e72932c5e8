// Upgrades databases of older versions of the program.
#include "queue/schema.h"

namespace innkeeper::queue {
namespace {

// Version 2: final states of pruned jobs.
constexpr const char* kPrunedEndings =
    "CREATE INDEX jobs_ended ON jobs(ended, id) WHERE state > 1;"
    "CREATE TABLE endings("
    "first INTEGER PRIMARY KEY, last INTEGER NOT NULL, state INTEGER NOT NULL, array INTEGER NOT NULL)";

// Version 3: shapes of requests that are granted or refused alike. Existing jobs get a
// shape each, as theirs is unknown.
constexpr const char* kRequestShapes =
    "ALTER TABLE jobs ADD COLUMN shape INTEGER NOT NULL DEFAULT 0;"
    "UPDATE jobs SET shape=id WHERE cards > 0;"
    "DROP INDEX jobs_ready_cards;"
    "CREATE INDEX jobs_ready_cards ON jobs(shape, priority DESC, id)"
    " WHERE state = 0 AND held = 0 AND unmet = 0 AND cards > 0";

// Version 4: a job is all of its processes, which get a grace period to end or may linger.
constexpr const char* kAllProcesses =
    "ALTER TABLE details ADD COLUMN grace_ms INTEGER NOT NULL DEFAULT 30000;"
    "ALTER TABLE details ADD COLUMN linger INTEGER NOT NULL DEFAULT 0";

// Came during version 3: umask, nice value and limits. A job without them has the runner's.
constexpr const char* kOwnLimits = "ALTER TABLE environments ADD COLUMN limits BLOB NOT NULL DEFAULT x''";

// 5: the columns of GPUs have other names.
constexpr const char* kGpuColumns =
    "ALTER TABLE jobs RENAME COLUMN cards TO gpus;"
    "ALTER TABLE attempts RENAME COLUMN cards TO gpus;"
    "DROP INDEX jobs_ready_cards;"
    "CREATE INDEX jobs_ready_gpus ON jobs(shape, priority DESC, id)"
    " WHERE state = 0 AND held = 0 AND unmet = 0 AND gpus > 0";

}  // namespace

Status upgrade(Database& database, int from) {
  if (from == 1) return database.execute(kPrunedEndings);
  if (from == 2) return database.execute(kRequestShapes);
  if (from == 4) return database.execute(kGpuColumns);
  IK_RETURN_IF_ERROR(database.execute(kAllProcesses));
  Query limits(database, "SELECT count(*) FROM pragma_table_info('environments') WHERE name='limits'");
  const bool known = limits.step() && limits.integer(0) > 0;
  IK_RETURN_IF_ERROR(limits.status());
  return known ? Status::okay() : database.execute(kOwnLimits);
}

}  // namespace innkeeper::queue
