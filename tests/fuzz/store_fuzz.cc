// The queue's database, damaged: values of rows replaced through SQL, bytes of the file changed, the file cut
// off, and any bytes as its log. For any content a call returns a result or a one-line error. No job begins
// twice.
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/check.h"
#include "fuzz/input.h"
#include "lease/record.h"
#include "queue/store.h"
#include "support/temporary_directory.h"
#include "support/temporary_queue_directory.h"

namespace {

using namespace innkeeper;
using namespace innkeeper::queue;
using fuzz::Input;
using test::good;

JobSpec spec() {
  JobSpec job;
  job.command = {"/bin/true", "{index}"};
  job.directory = "/";
  return job;
}

// A queue with jobs in each state, made once; every input begins with its file.
class FilledQueue {
 public:
  FilledQueue() {
    queue_directory_ = good(QueueDirectory::open((directory_.path() / "queue").string()));
    fill();
    std::stringstream text;
    text << std::ifstream(queue_directory_->database()).rdbuf();
    whole_ = text.str();
    IK_CHECK(!std::filesystem::exists(log()), "the file is not all there is");
    read_columns();
  }

  const QueueDirectory& directory() const { return *queue_directory_; }
  const std::string& whole() const { return whole_; }
  std::string log() const { return queue_directory_->database() + "-wal"; }

  void put(const std::string& bytes) const {
    for (const char* ending : {"-wal", "-shm"})
      std::filesystem::remove(queue_directory_->database() + ending);
    std::ofstream(queue_directory_->database(), std::ios::binary) << bytes;
  }

  struct Column {
    std::string table, key, name;
  };
  const std::vector<Column>& columns() const { return columns_; }

 private:
  void fill() const {
    Store store =
        good(Store::open(*queue_directory_, Durable::power));  // Durable, so that closing leaves no log.
    JobSpec many = spec();
    many.environment = {"A=" + std::string(300, 'a')};
    for (int64_t index = 0; index < 5; ++index) many.indices.push_back(index);
    const JobId first = good(store.add(many))[0];
    JobSpec gpus = spec();
    gpus.gpus = lease::Request();
    gpus.gpus->count = 2;
    gpus.gpus->memory = GiB(3);
    gpus.retries = 2;
    const JobId with_gpus = good(store.add(gpus))[0];
    JobSpec after = spec();
    after.after = {{with_gpus, false}, {first + 1, true}};
    (void)good(store.add(after));
    Ending ending;
    ending.how = How::exited;
    ending.ended_ns = 1;
    for (const JobId id : {first, first + 1, with_gpus}) IK_CHECK(good(store.claim(id, 1, "GPU-1", "boot")));
    (void)good(store.finish(first, 1, ending));
    ending.code = 1;
    (void)good(store.finish(with_gpus, 1, ending));
    (void)good(store.cancel({first + 2}));
    IK_CHECK(store.hold({first + 3}, true).ok() && store.set("slots", 4).ok());
  }
  void read_columns() {
    sqlite3* file = nullptr;
    IK_CHECK(sqlite3_open(queue_directory_->database().c_str(), &file) == SQLITE_OK);
    const auto row = [](void* all, int, char** values, char**) {
      static_cast<std::vector<Column>*>(all)->push_back({values[0], values[1], values[2]});
      return 0;
    };
    IK_CHECK(sqlite3_exec(file,
                          "SELECT m.name, (SELECT name FROM pragma_table_info(m.name) WHERE cid=0), p.name "
                          "FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type='table'",
                          row, &columns_, nullptr) == SQLITE_OK);
    sqlite3_close(file);
    IK_CHECK(columns_.size() > 30);
  }

  const test::TemporaryDirectory directory_{"queue-fuzz"};
  std::shared_ptr<const QueueDirectory> queue_directory_;
  std::string whole_;
  std::vector<Column> columns_;
};

// ---- Damage

void bind_value(sqlite3_stmt* statement, Input& input) {
  static constexpr int64_t kNumbers[] = {0,         1,         2,         -1,        3,         257,
                                         INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 32, 7};
  switch (input.byte() % 6) {
    case 0: sqlite3_bind_null(statement, 1); break;
    case 1: sqlite3_bind_double(statement, 1, 1e300); break;
    case 2: sqlite3_bind_text(statement, 1, input.text(60).c_str(), -1, SQLITE_TRANSIENT); break;
    case 3: {
      const std::string bytes = input.text(60);
      sqlite3_bind_blob(statement, 1, bytes.data(), static_cast<int>(bytes.size()), SQLITE_TRANSIENT);
      break;
    }
    case 4: sqlite3_bind_int64(statement, 1, input.number<int64_t>()); break;
    default: sqlite3_bind_int64(statement, 1, input.one_of(kNumbers));
  }
}

// Replaces some values of rows by others' and removes some rows. Changes that the schema refuses do not
// happen.
void damage_rows(const FilledQueue& queue, Input& input) {
  sqlite3* file = nullptr;
  IK_CHECK(sqlite3_open(queue.directory().database().c_str(), &file) == SQLITE_OK);
  for (size_t count = 1 + input.upto(7); count > 0; --count) {
    const FilledQueue::Column& column = input.one_of(queue.columns());
    const bool remove = input.byte() > 240;
    const std::string sql = (remove ? "DELETE FROM " + column.table + " WHERE ?1 IS NOT NULL AND "
                                    : "UPDATE " + column.table + " SET " + column.name + "=?1 WHERE ") +
                            "(?2=0 OR " + column.key + "=?2)";
    sqlite3_stmt* statement = nullptr;
    IK_CHECK(sqlite3_prepare_v2(file, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK, sql);
    bind_value(statement, input);
    sqlite3_bind_int64(statement, 2, static_cast<int64_t>(input.upto(9)));
    sqlite3_step(statement);
    sqlite3_finalize(statement);
  }
  sqlite3_close(file);
}

void damage_bytes(const FilledQueue& queue, Input& input) {
  std::string bytes = queue.whole();
  for (size_t count = 1 + input.upto(15); count > 0; --count) {
    const size_t at = input.upto(bytes.size() - 1);
    for (const char c : input.text(4)) bytes[std::min(at, bytes.size() - 1)] = c;
  }
  if (input.byte() > 200) bytes.resize(input.upto(bytes.size()));
  queue.put(bytes);
}

// ---- Use

void check(const Status& status) {
  if (status.ok()) return;
  IK_CHECK(!status.message().empty() && fuzz::is_one_line(status.message()), status.message());
}
// The value of the result; none if it is a one-line error.
template <class T>
std::optional<T> answer(Result<T> result) {
  check(result.ok() ? Status::okay() : result.status());
  if (!result.ok()) return std::nullopt;
  return std::move(result).value();
}

bool known(State state) { return state <= State::interrupted; }

void check_line(const JobLine& line) {
  IK_CHECK(known(line.state) && line.how <= How::unknown);
  IK_CHECK(line.attempt >= 0 && line.attempt < INT32_MAX, "the next attempt has no number");
  IK_CHECK(line.gpus >= 0 && line.memory >= Bytes(0));
  IK_CHECK(fuzz::is_one_line(line.title), "a terminal would obey a title");
}

// Actions of a runner, and their effects as every user sees them.
class User {
 public:
  User(Store store, Input& input) : store_(std::move(store)), input_(input) {}

  void use() {
    look();
    for (int round = 0; round < 2; ++round) {
      for (const Ready& job : answer(store_.ready(4)).value_or(std::vector<Ready>())) {
        IK_CHECK(job.cpu_slots >= 0, "slots are given back by starting");
        begin(job.id);
      }
      for (const Head& head : answer(store_.heads(4)).value_or(std::vector<Head>())) {
        begin(head.id);
        (void)answer(store_.head(head.shape));
      }
    }
    add();
    for (JobId id = 0; id < 9; ++id)
      if (const auto states = answer(store_.cancel({id}))) IK_CHECK(known(states->front()));
    look();
  }

 private:
  void look() {
    const auto lines = answer(store_.list({}));
    JobId last = INT64_MIN;
    for (const JobLine& line : lines.value_or(std::vector<JobLine>())) {
      check_line(line);
      in_order_ = in_order_ && line.id > last;
      last = line.id;
      highest_ = std::max(highest_, line.id);
    }
    for (JobId id = 0; id < 9; ++id) {
      const auto job = answer(store_.get(id));
      if (!job) continue;
      check_line(*job);
      IK_CHECK(!job->time_limit || job->time_limit->count() > 0);
    }
    for (const Running& job : answer(store_.running()).value_or(std::vector<Running>()))
      IK_CHECK(job.cpu_slots >= 0 && job.attempt >= 0 && job.attempt < INT32_MAX);
    (void)answer(store_.setting("slots", 1));
    if (const auto measured = answer(store_.measured_of("/", {"/bin/true", "0"})))
      IK_CHECK(measured->runs >= 0 && measured->peak_memory >= Bytes(0) && measured->peak_host >= Bytes(0));
  }

  void begin(JobId id) {
    const auto line = answer(store_.line(id));
    if (!line) return;
    const int attempt = line->attempt + 1;
    if (!answer(store_.claim(id, attempt, "GPU-1", "boot")).value_or(false)) return;
    IK_CHECK(begun_.insert({id, attempt}).second, "an attempt began twice");
    IK_CHECK(!answer(store_.claim(id, attempt, "", "boot")).value_or(false), "a job was begun while it ran");
    IK_CHECK(!answer(store_.claim(id, attempt + 1, "", "boot")).value_or(false),
             "a job was begun while it ran");
    Ending ending;
    ending.how = static_cast<How>(input_.byte() % 6);
    ending.code = input_.byte() % 3;
    switch (input_.byte() % 4) {
      case 0: return;  // The job runs on.
      case 1: check(store_.take_back(id, attempt)); return;
      case 2: check(store_.measured(id, attempt, GiB(1))); [[fallthrough]];
      default:
        if (const auto state = answer(store_.finish(id, attempt, ending)))
          IK_CHECK(known(*state) && *state != State::running, "it ended, and runs");
        if (const auto state = answer(store_.finish(id, attempt, ending))) IK_CHECK(*state != State::running);
    }
  }

  void add() {
    const auto ids = answer(store_.add(spec()));
    if (!ids) return;
    IK_CHECK(ids->size() == 1);
    IK_CHECK(!in_order_ || (*ids)[0] > highest_, "a number is used again");
    if (const auto job = answer(store_.get((*ids)[0]))) IK_CHECK(job->command == spec().command);
  }

  Store store_;
  Input& input_;
  JobId highest_ = 0;
  bool in_order_ = true;  // False: the tree itself is damaged, in which SQLite looks for the last number.
  std::set<std::pair<JobId, int>> begun_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const FilledQueue queue;
  Input input(data, size);
  const uint8_t kind = input.byte();
  queue.put(queue.whole());
  if (kind % 2 == 0) {
    damage_rows(queue, input);
  } else {
    damage_bytes(queue, input);
  }
  if (kind > 250) std::ofstream(queue.log(), std::ios::binary) << input.text(0x200);
  Result<Store> store = Store::open(queue.directory(), Durable::processes);
  check(store.ok() ? Status::okay() : store.status());
  if (store.ok()) User(std::move(store).value(), input).use();
  return 0;
}
