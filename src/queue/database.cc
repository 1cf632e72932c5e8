#include "queue/database.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/disk_space.h"
#include "lease/kill_point.h"
#include "lease/record.h"
#include "queue/raw_file.h"

namespace innkeeper::queue {
namespace {

constexpr int kBusyMs = 20'000;
constexpr int kWalTries = 500;

// SQLite's error text may repeat bytes of a damaged file, so it is made printable.
Status describe(int code, const std::string& path, const std::string& words) {
  const std::string detail = lease::printable(words);
  switch (code & 0xff) {
    case SQLITE_NOTADB: return not_ours(Code::damaged, path);
    case SQLITE_CORRUPT:
      return Status(Code::damaged, "the queue's database " + path + " is damaged (" + detail +
                                       "); it is left as it is: `sqlite3 " + path +
                                       " .recover` shows what can be read");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Status(Code::busy, "the queue's database " + path + " has been locked by somebody else for " +
                                    std::to_string(kBusyMs / 1000) + " s");
    case SQLITE_FULL:
      return Status(Code::io_error,
                    "no room for the queue's database " + path + space_left(path) +
                        ": make room there; `innkeeper queue prune` forgets old jobs and their output");
    default: return Status(Code::io_error, "the queue's database " + path + ": " + detail);
  }
}

Status missing(const std::string& path) {
  return Status(Code::damaged, "the queue's database " + path + " is missing or empty");
}

}  // namespace

Status not_ours(Code code, const std::string& path) {
  return Status(code,
                path + " is not a queue's database; it is left as it is: move it away to begin a new one");
}

Header read_header(const std::string& path, const Schema& schema) {
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  constexpr size_t kPageSizeAt = 16, kPagesAt = 28, kApplicationAt = 68;
  std::array<unsigned char, 100> bytes{};
  const RawFile file(path);
  if (!file.valid()) return {};
  const ssize_t length = file.read(0, bytes.data(), bytes.size());
  if (length == 0) return {};
  if (length != ssize_t{bytes.size()} || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return {Header::unreadable, 0};
  const auto big_endian = [&](size_t at, size_t count) {
    int64_t value = 0;
    for (size_t i = 0; i < count; ++i) value = value << 8 | bytes[at + i];
    return value;
  };
  const int64_t application = big_endian(kApplicationAt, 4);
  if (application == 0) return {Header::unmarked, 0};
  if (application != schema.application) return {Header::foreign, 0};
  const int64_t page = big_endian(kPageSizeAt, 2);
  return {Header::ours, (page == 1 ? 65536 : page) * big_endian(kPagesAt, 4)};
}

Status Database::failure() const {
  const int code = sqlite3_extended_errcode(handle_);
  if ((code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB) damage_ = true;
  std::string detail = sqlite3_errmsg(handle_);
  const int error = sqlite3_system_errno(handle_);
  // These codes concern the files beside the database.
  const bool beside = (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN;
  if (beside && error == ENOSPC) return describe(SQLITE_FULL, path_, detail);
  if ((code & 0xff) == SQLITE_IOERR && error != 0) detail += std::string(": ") + std::strerror(error);
  return describe(code, path_, detail);
}

Result<Database> Database::connect(const std::string& path, bool may_make) {
  sqlite3* handle = nullptr;
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
  if (may_make) flags |= SQLITE_OPEN_CREATE;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  Database database(handle, path);
  if (code != SQLITE_OK) return describe(code, path, handle ? sqlite3_errmsg(handle) : "no memory");
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, kBusyMs);
  // A hostile or damaged file must not make SQLite call functions or trust the file's own structure.
  sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  IK_RETURN_IF_ERROR(database.execute("PRAGMA cell_size_check=ON"));
  return database;
}

Result<Database> Database::open_part(const std::string& path, const Schema& schema) {
  Result<Database> database = connect(path, /*may_make=*/true);
  if (database.ok()) IK_RETURN_IF_ERROR(database.value().begin_file(schema, /*may_make=*/true));
  return database;
}

Result<Database> Database::open(const std::string& path, Durable durable, const Schema& schema,
                                const std::function<bool()>& may_be_new) {
  // The log is examined first, because a process that creates a database creates the file before its log.
  struct stat about {};
  const bool has_log = stat((path + "-wal").c_str(), &about) == 0 && about.st_size > 0;
  const Header header = read_header(path, schema);
  if (header.kind == Header::foreign || (header.kind == Header::unmarked && has_log))
    return not_ours(Code::io_error, path);
  if (header.kind == Header::unreadable) return not_ours(Code::damaged, path);
  if (header.kind == Header::none && has_log && (lstat(path.c_str(), &about) != 0 || S_ISREG(about.st_mode)))
    return Status(Code::damaged, "the queue's database " + path + " is empty, and its log is not");
  // A lost database is not created again: the numbers of its jobs would be given twice.
  const bool may_make = header.kind == Header::unmarked || (header.kind == Header::none && may_be_new());
  lease::step("database looked at");
  const auto lost = [&] { return !may_make && read_header(path, schema).kind != Header::ours; };
  Result<Database> connected = connect(path, may_make);
  if (!connected.ok() && lost()) return missing(path);
  if (!connected.ok()) return connected;
  Database& database = connected.value();
  const Status begun = database.begin_file(schema, may_make);
  if (!begun.ok() && lost()) return missing(path);
  IK_RETURN_IF_ERROR(begun);
  // In WAL mode readers never wait for the runner, and a commit is one write. NORMAL loses no commit when a
  // process is killed, only at a power cut. FULL waits for the disk at each commit (see Durable).
  IK_RETURN_IF_ERROR(database.use_wal());
  IK_RETURN_IF_ERROR(
      database.execute(durable == Durable::power ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL"));
  // Otherwise a program that adds one job while no other process has the file open would copy the log into
  // the file. It would wait for the disk three times. The log is as safe in its own file; SQLite copies it
  // once it has grown.
  if (durable == Durable::processes)
    sqlite3_db_config(database.handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  IK_RETURN_IF_ERROR(database.execute("PRAGMA journal_size_limit=16777216"));
  return connected;
}

// If two processes switch a new file to WAL at once, SQLite reports "busy" to one of them without waiting.
Status Database::use_wal() {
  Status status;
  for (int i = 0; i < kWalTries; ++i) {
    status = execute("PRAGMA journal_mode=WAL");
    if (status.code() != Code::busy) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return status;
}

// The file stays unchanged until it is known to be a queue's database.
Status Database::begin_file(const Schema& schema, bool may_make) {
  const auto pragma = [this](const char* sql, int64_t& value) {
    Query query(*this, sql);
    value = query.step() ? query.integer(0) : 0;
    return query.status();
  };
  int64_t found_application = 0, found_version = 0, tables = 0;
  const auto look = [&] {
    IK_RETURN_IF_ERROR(pragma("PRAGMA application_id", found_application));
    IK_RETURN_IF_ERROR(pragma("PRAGMA user_version", found_version));
    return pragma("SELECT count(*) FROM sqlite_schema", tables);
  };
  const auto set_version = [&] {
    return execute(("PRAGMA user_version=" + std::to_string(schema.version)).c_str());
  };
  IK_RETURN_IF_ERROR(look());
  if (found_application == 0 && tables == 0) {
    if (!may_make) return missing(path_);
    // SQLite accepts this setting only before the first table exists.
    IK_RETURN_IF_ERROR(execute("PRAGMA auto_vacuum=INCREMENTAL"));
    Transaction transaction(*this);
    IK_RETURN_IF_ERROR(transaction.status());
    IK_RETURN_IF_ERROR(look());  // Another process may have created the tables meanwhile.
    if (found_application == 0 && tables == 0) {
      IK_RETURN_IF_ERROR(execute(schema.tables));
      IK_RETURN_IF_ERROR(execute(("PRAGMA application_id=" + std::to_string(schema.application)).c_str()));
      IK_RETURN_IF_ERROR(set_version());
      return transaction.commit();
    }
  }
  if (found_application != schema.application) return not_ours(Code::io_error, path_);
  if (found_version >= 1 && found_version < schema.version) {
    Transaction transaction(*this);
    IK_RETURN_IF_ERROR(transaction.status());
    IK_RETURN_IF_ERROR(look());
    for (int64_t from = found_version; from < schema.version; ++from)
      IK_RETURN_IF_ERROR(schema.upgrade(*this, static_cast<int>(from)));
    IK_RETURN_IF_ERROR(set_version());
    return transaction.commit();
  }
  if (found_version != schema.version)
    return Status(Code::io_error, "the queue's database " + path_ + " is of version " +
                                      std::to_string(found_version) + ", this program's is " +
                                      std::to_string(schema.version) +
                                      "; it is left as it is: use the program that made it");
  return Status::okay();
}

Database::Database(Database&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      path_(std::move(other.path_)),
      damage_(other.damage_),
      prepared_(std::exchange(other.prepared_, {})) {}

Database::~Database() {
  for (const auto& [sql, statement] : prepared_) sqlite3_finalize(statement);
  if (handle_ != nullptr) sqlite3_close(handle_);
}

Status Database::execute(const char* sql) {
  return sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) == SQLITE_OK ? Status::okay() : failure();
}

Result<std::string> Database::find_damage() {
  Query check(*this, "PRAGMA quick_check(1)");
  const bool answered = check.step();
  if (!answered && take_damage()) return check.status().message();
  if (!answered) return check.status();
  const std::string found(check.text(0));
  return found == "ok" ? std::string() : found;
}

Status Database::replace_by(Database& other) {
  sqlite3_backup* const copy = sqlite3_backup_init(handle_, "main", other.handle_, "main");
  if (copy == nullptr) return failure();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kBusyMs);
  int code = SQLITE_BUSY;
  while ((code == SQLITE_BUSY || code == SQLITE_LOCKED) && std::chrono::steady_clock::now() < end) {
    code = sqlite3_backup_step(copy, -1);
    if (code != SQLITE_DONE) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  code = sqlite3_backup_finish(copy);
  if (code != SQLITE_OK) return describe(code, path_, sqlite3_errmsg(handle_));
  return Status::okay();
}

bool Database::moved() const {
  int moved = 0;
  sqlite3_file_control(handle_, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  return moved != 0;
}

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(handle_); }
int Database::changes() const { return sqlite3_changes(handle_); }

Query::Query(Database& database, const char* sql) : database_(database) {
  sqlite3_stmt*& known = database.prepared_[sql];
  if (known == nullptr)
    check(sqlite3_prepare_v3(database.handle_, sql, -1, SQLITE_PREPARE_PERSISTENT, &known, nullptr));
  statement_ = known;
}

Query::~Query() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Query::check(int code) {
  if (code != SQLITE_OK && code != SQLITE_ROW && code != SQLITE_DONE && status_.ok())
    status_ = database_.failure();
}

Query& Query::with(int64_t value) {
  if (statement_ != nullptr) check(sqlite3_bind_int64(statement_, ++parameters_, value));
  return *this;
}

Query& Query::with_blob(std::string_view bytes) {
  if (statement_ != nullptr)
    check(sqlite3_bind_blob(statement_, ++parameters_, bytes.data(), static_cast<int>(bytes.size()),
                            SQLITE_STATIC));
  return *this;
}

bool Query::step() {
  if (!status_.ok()) return false;
  const int code = sqlite3_step(statement_);
  check(code);
  return code == SQLITE_ROW;
}

Status Query::run() {
  while (step()) {
  }
  // The statement may run again before this object ends.
  if (statement_ != nullptr) sqlite3_reset(statement_);
  return status_;
}

int64_t Query::integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::string_view Query::text(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string_view()
                         : std::string_view(static_cast<const char*>(data), static_cast<size_t>(size));
}

Transaction::Transaction(Database& database) : database_(database) {
  status_ = Query(database, "BEGIN IMMEDIATE").run();
  open_ = status_.ok();
}

Transaction::~Transaction() {
  if (open_) (void)database_.execute("ROLLBACK");
}

Status Transaction::commit() {
  IK_RETURN_IF_ERROR(Query(database_, "COMMIT").run());
  open_ = false;
  return Status::okay();
}

}  // namespace innkeeper::queue
