// Rules of leasing that need no files: records, free memory of a GPU, choice of GPUs, requests.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "lease/choose.h"
#include "lease/directory.h"
#include "lease/ledger.h"
#include "lease/record.h"
#include "lease/request.h"
#include "support/temporary_lease_directory.h"

namespace innkeeper::lease {
namespace {

using test::idle_machine;
using test::share;
using test::whole;

constexpr uint64_t kHere = 77;  // Number of a PID namespace.
constexpr int64_t kNow = 1'000'000'000'000'000;
const View kView{kNow, kHere};

Record some_record() {
  Record record;
  record.claims = {{"GPU-1000", GiB(20)}, {"GPU-1001", GiB(20)}};
  record.since_ns = kNow;
  record.process = {42, 7};
  record.pid_namespace = kHere;
  record.command = "python train.py";
  record.revision = 1;
  return record;
}

Entry entry(std::vector<Claim> claims, int64_t pid = 42, bool exclusive = false) {
  Entry result{"00000000000000a" + std::to_string(pid % 10), some_record(), kNow};
  result.record.claims = std::move(claims);
  result.record.process = {pid, 7};
  result.record.exclusive = exclusive;
  return result;
}

// ---- Records

TEST(LeaseRecord, ReadsWhatItWrote) {
  Record record = some_record();
  record.kind = Kind::waiting;
  record.count = 2;
  record.each = GiB(20);
  record.exclusive = true;
  record.allowed = {"GPU-1000", "MIG-GPU-8f6c/1/0"};
  record.inside = {"0123456789abcdef", "00000000000000aa"};
  record.expires_ns = kNow + 5;
  record.job = "job 7";
  const auto read = decode(encode(record).value());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, Kind::waiting);
  EXPECT_EQ(read->claims, record.claims);
  EXPECT_TRUE(read->exclusive);
  EXPECT_EQ(read->count, 2);
  EXPECT_EQ(read->each, GiB(20));
  EXPECT_EQ(read->allowed, record.allowed);
  EXPECT_EQ(read->inside, record.inside);
  EXPECT_EQ(read->since_ns, kNow);
  EXPECT_EQ(read->expires_ns, kNow + 5);
  EXPECT_EQ(read->process, record.process);
  EXPECT_EQ(read->pid_namespace, kHere);
  EXPECT_EQ(read->command, "python train.py");
  EXPECT_EQ(read->job, "job 7");
}

std::string two_slots(const std::string& first, const std::string& second) {
  std::string file = first;
  file.resize(kSlotBytes, '\0');
  return file + second;
}

// A writer killed after any number of bytes of the new slot leaves the whole old record or the whole new one.
TEST(LeaseRecord, ATornChangeLeavesTheOldRecord) {
  Record old_record = some_record(), new_record = some_record();
  new_record.revision = 2;
  new_record.claims[0].bytes = GiB(1);
  const std::string first = encode(old_record).value(), second = encode(new_record).value();
  for (size_t cut = 0; cut < second.size(); ++cut) {
    const auto read = decode(two_slots(first, second.substr(0, cut)));
    ASSERT_TRUE(read) << cut;
    EXPECT_EQ(read->claims[0].bytes, GiB(20)) << cut;
  }
  EXPECT_EQ(decode(two_slots(first, second))->claims[0].bytes, GiB(1));
  EXPECT_EQ(decode(two_slots(second, first))->claims[0].bytes, GiB(1));
}

// Decoding rejects a record with a single changed byte.
TEST(LeaseRecord, AChangedByteIsNoRecord) {
  const std::string good = encode(some_record()).value();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    const auto read = decode(bad);
    EXPECT_FALSE(read && read->claims != some_record().claims) << i;
  }
}

// A body with a right checksum, which any user can write.
std::string forged(const std::string& body) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : body) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char header[96];
  std::snprintf(header, sizeof header, "innkeeper-lease 1 1 %zu %llx\n", body.size(),
                static_cast<unsigned long long>(hash ^ 1));
  return header + body;
}

TEST(LeaseRecord, ForgedRecordsKeepToTheLimits) {
  ASSERT_TRUE(decode(forged("kind=held\ngpu=GPU-1 5\nnew-key=9\n")));
  const std::string bad[] = {"gpu=GPU-1 -5\n",
                             "gpu=GPU-1 99999999999999999999\n",
                             "gpu=GPU-1\n",
                             "gpu= 5\n",
                             "gpu=GPU 1 5\n",
                             "gpu=GPU-1 5\ngpu=GPU-1 5\n",
                             "gpu=GPU-2 5\ngpu=GPU-1 5",
                             "kind=king\n",
                             "inside=../../etc/pwd123\n",
                             "count=65\n",
                             "count=-1\n",
                             "since=1e9\n",
                             "pid=99999999999999999999\n",
                             "gpu=" + std::string(97, 'x') + " 5\n",
                             "exclusive=yes\n"};
  for (const std::string& body : bad) {
    EXPECT_FALSE(decode(forged(body))) << body;
  }
  std::string many;
  for (int i = 0; i < 65; ++i) many += "gpu=G" + std::to_string(100 + i) + " 1\n";
  EXPECT_FALSE(decode(forged(many)));
  std::string deep;
  for (size_t i = 0; i < kMaxWholes; ++i) deep += "inside=00000000000000aa\n";
  EXPECT_TRUE(decode(forged(deep)));
  EXPECT_FALSE(decode(forged(deep + "inside=00000000000000aa\n")));
}

TEST(LeaseRecord, OtherPeoplesTextCannotDriveATerminal) {
  const auto read = decode(forged("command=rm \x1b[2J\x9b\rx\njob=\xff\x01\n"));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->command, "rm \\x1b[2J\\x9b\\x0dx");
  EXPECT_EQ(read->job, "\\xff\\x01");
}

TEST(LeaseRecord, AnyBytesAreReadWithoutHarm) {
  std::mt19937 random(7);
  const std::string good = encode(some_record()).value();
  for (int round = 0; round < 3000; ++round) {
    std::string text = round % 2 == 0 ? good : two_slots(good, good);
    for (int change = 0; change < 4; ++change) text[random() % text.size()] = static_cast<char>(random());
    if (round % 3 == 0) text.resize(random() % text.size());
    if (const auto read = decode(text)) {
      EXPECT_LE(read->claims.size(), kMaxClaims);
    }
  }
}

TEST(LeaseRecord, WhatCannotBeReadIsNotWritten) {
  Record record = some_record();
  record.claims[0].uuid = "two words";
  EXPECT_EQ(encode(record).status().code(), Code::invalid_argument);
  record = some_record();
  record.command = "two\nlines=1";
  EXPECT_EQ(decode(encode(record).value())->command, "two\\x0alines=1");
}

// ---- Free memory

TEST(LeaseLedger, ALeaseCountsInFullFromItsGrant) {
  Machine machine = idle_machine(2);
  const Ledger ledger = make_ledger(machine, {entry({{"GPU-1000", GiB(30)}})}, kView);
  EXPECT_EQ(ledger[0].available, GiB(50));
  EXPECT_EQ(ledger[0].promised, GiB(30));
  EXPECT_EQ(ledger[1].available, GiB(80));
}

TEST(LeaseLedger, MemoryOfTheLeasesTreeDoesNotCountTwice) {
  Machine machine = idle_machine(1);
  machine.gpus[0].free = GiB(80) - GiB(12);
  // The second process is a child of the holder.
  machine.gpus[0].processes = {{GiB(12), {{50, 9}, {42, 7}, {1, 1}}}};
  const std::vector<Entry> live = {entry({{"GPU-1000", GiB(30)}})};
  Ledger ledger = make_ledger(machine, live, kView);
  EXPECT_EQ(ledger[0].available, GiB(50));
  EXPECT_EQ(ledger[0].foreign, Bytes(0));
  // The same number, but another process: the system reuses process numbers.
  machine.gpus[0].processes[0].line[1].start_ticks = 8;
  ledger = make_ledger(machine, live, kView);
  EXPECT_EQ(ledger[0].foreign, GiB(12));
  EXPECT_EQ(ledger[0].available, GiB(38));
}

TEST(LeaseLedger, UsingMoreThanTheLeaseIsForeign) {
  Machine machine = idle_machine(1);
  machine.gpus[0].free = GiB(40);
  machine.gpus[0].processes = {{GiB(40), {{42, 7}}}};
  const Ledger ledger = make_ledger(machine, {entry({{"GPU-1000", GiB(30)}})}, kView);
  EXPECT_EQ(ledger[0].foreign, GiB(10));
  EXPECT_EQ(ledger[0].available, GiB(40));
}

TEST(LeaseLedger, TheDriversReserveIsNotForLeases) {
  Machine machine = idle_machine(1);
  machine.gpus[0].reserved = GiB(1);
  machine.gpus[0].free = GiB(79);
  EXPECT_EQ(make_ledger(machine, {}, kView)[0].available, GiB(79));
}

// Two leases of one process: its bytes are divided between them, never doubled.
TEST(LeaseLedger, OneProcessWithTwoLeases) {
  Machine machine = idle_machine(1);
  machine.gpus[0].free = GiB(80) - GiB(15);
  machine.gpus[0].processes = {{GiB(15), {{42, 7}}}};
  const Ledger ledger =
      make_ledger(machine, {entry({{"GPU-1000", GiB(10)}}), entry({{"GPU-1000", GiB(10)}})}, kView);
  EXPECT_EQ(ledger[0].promised, GiB(20));
  EXPECT_EQ(ledger[0].available, GiB(60));
}

TEST(LeaseLedger, UnmatchedLeasesCountInFullUntilWarm) {
  Machine machine = idle_machine(1);
  machine.gpus[0].free = GiB(50);
  machine.gpus[0].processes = {{GiB(30), {}}};  // A container cannot resolve the host's process number.
  Entry lease = entry({{"GPU-1000", GiB(30)}});
  EXPECT_EQ(make_ledger(machine, {lease}, kView)[0].available, GiB(20));
  lease.record.since_ns = kNow - kWarmUpNs;
  EXPECT_EQ(make_ledger(machine, {lease}, kView)[0].available, GiB(50));
  // A lease of another namespace counts too, but known processes' bytes do not belong to it.
  machine.gpus[0].processes = {{GiB(30), {{99, 1}}}};
  lease.record.pid_namespace = kHere + 1;
  EXPECT_EQ(make_ledger(machine, {lease}, kView)[0].available, GiB(20));
}

TEST(LeaseLedger, WithoutMeasuredMemoryLeasesAlone) {
  Machine machine = idle_machine(1);
  machine.gpus[0].free.reset();
  EXPECT_EQ(make_ledger(machine, {entry({{"GPU-1000", GiB(30)}})}, kView)[0].available, GiB(50));
}

TEST(LeaseLedger, ClaimsAreNoMoreThanTheGpu) {
  Machine machine = idle_machine(1);
  const Bytes most(INT64_MAX);
  const Ledger ledger = make_ledger(
      machine, {entry({{"GPU-1000", most}}), entry({{"GPU-1000", most}}), entry({{"GPU-0", most}})}, kView);
  EXPECT_EQ(ledger[0].promised, GiB(160));
  EXPECT_EQ(ledger[0].available, Bytes(0) - GiB(80));
}

TEST(LeaseLedger, ExpiredLeasesClaimNothing) {
  Entry lease = entry({{"GPU-1000", GiB(30)}}, 42, true);
  lease.record.expires_ns = kNow;
  const Ledger ledger = make_ledger(idle_machine(1), {lease}, kView);
  EXPECT_EQ(ledger[0].available, GiB(80));
  EXPECT_FALSE(ledger[0].taken);
}

TEST(LeaseLedger, PartsCountOnceAndStandForThemselvesLater) {
  const Machine machine = idle_machine(1);
  Entry outer = entry({{"GPU-1000", GiB(30)}}, 1), part = entry({{"GPU-1000", GiB(10)}}, 2);
  part.record.inside = {outer.id};
  EXPECT_EQ(make_ledger(machine, {outer, part}, kView)[0].promised, GiB(30));
  EXPECT_EQ(make_ledger(machine, {part}, kView)[0].promised, GiB(10));
  EXPECT_EQ(make_ledger_inside(machine, {outer, part}, outer, kView)[0].available, GiB(20));
  // A part written by another user does not count as inside the lease: it would consume the lease's memory.
  part.record.uid = outer.record.uid + 1;
  EXPECT_EQ(make_ledger(machine, {outer, part}, kView)[0].promised, GiB(40));
  EXPECT_EQ(make_ledger_inside(machine, {outer, part}, outer, kView)[0].available, GiB(30));
}

// ---- Choosing

std::optional<std::vector<size_t>> chosen(const Machine& machine, const std::vector<Entry>& live,
                                          const Request& request) {
  Ledger ledger = make_ledger(machine, live, kView);
  if (request.allowed) restrict_to(ledger, machine, *request.allowed);
  std::vector<double> keys;
  if (request.key)
    for (const Gpu& gpu : machine.gpus) keys.push_back(request.key(gpu));
  return choose(machine, ledger, wish_of(request), scores(machine, ledger, request.by, keys));
}

using Gpus = std::vector<size_t>;

// Where GPU and machine share one memory (GB10), the machine's use lowers the free memory but is no foreign
// use of the GPU.
TEST(LeaseChoice, OfOneMemoryTheMachinesPartTakesNoGpu) {
  Machine machine = idle_machine(1);
  machine.gpus[0].free = GiB(60);
  const auto whole_gpu = [&](const std::vector<Entry>& live) {
    return chosen(machine, live, whole()).has_value();
  };
  EXPECT_FALSE(whole_gpu({}));
  machine.gpus[0].unified = true;
  EXPECT_TRUE(whole_gpu({}));
  EXPECT_EQ(make_ledger(machine, {}, kView)[0].available, GiB(60));
  const std::vector<Entry> live = {entry({{"GPU-1000", GiB(30)}})};
  EXPECT_FALSE(whole_gpu(live));
  EXPECT_EQ(make_ledger(machine, live, kView)[0].available, GiB(30)) << "it has allocated nothing yet";
  // The first process is the holder's, the second a stranger's.
  machine.gpus[0].processes = {{GiB(12), {{42, 7}}}, {GiB(1), {{50, 9}}}};
  EXPECT_FALSE(whole_gpu({}));
  const Ledger ledger = make_ledger(machine, live, kView);
  EXPECT_EQ(ledger[0].foreign, GiB(1));
  EXPECT_EQ(ledger[0].available, GiB(42));
}

TEST(LeaseChoice, EachModePrefersItsOwn) {
  Machine machine = idle_machine(4);
  machine.gpus[0].total = machine.gpus[0].free.emplace(GiB(24));
  machine.gpus[1].free = GiB(60);
  machine.gpus[2].free = GiB(50);
  machine.gpus[3].free = GiB(10);
  const double power[] = {0.9, 0.5, 0.2, 0.8}, utilization[] = {0.9, 0.5, 0.8, 0.1};
  for (size_t i = 0; i < 4; ++i) {
    machine.gpus[i].power_ratio = power[i];
    machine.gpus[i].utilization = utilization[i];
  }
  Request request = share(GiB(4));
  EXPECT_EQ(chosen(machine, {}, request), Gpus{1});
  request.by = By::ratio;
  EXPECT_EQ(chosen(machine, {}, request), Gpus{0});
  request.by = By::power;
  EXPECT_EQ(chosen(machine, {}, request), Gpus{2});
  request.by = By::utilization;
  EXPECT_EQ(chosen(machine, {}, request), Gpus{3});
  request.key = [](const Gpu& gpu) { return gpu.uuid == "GPU-1003" ? 0.0 : *gpu.power_ratio; };
  EXPECT_EQ(chosen(machine, {}, request), Gpus{0});
}

TEST(LeaseChoice, AKeyThatIsNoNumberIsTheWorst) {
  const Machine machine = idle_machine(40);
  Request request = share(GiB(4));
  request.key = [](const Gpu& gpu) { return gpu.uuid == "GPU-1037" ? 1.0 : std::nan(""); };
  EXPECT_EQ(chosen(machine, {}, request), Gpus{37});
  request.count = 2;
  EXPECT_EQ(chosen(machine, {}, request), (Gpus{0, 37}));
}

TEST(LeaseChoice, PrefersGpusWithoutALease) {
  Machine machine = idle_machine(2);
  machine.gpus[1].free = GiB(40);
  EXPECT_EQ(chosen(machine, {entry({{"GPU-1000", GiB(1)}})}, share(GiB(4))), Gpus{1});
  EXPECT_EQ(chosen(machine, {entry({{"GPU-1000", GiB(1)}})}, share(GiB(60))), Gpus{0});
}

TEST(LeaseChoice, NeverOutsideWhatIsAllowed) {
  Request request = share(GiB(4));
  request.allowed = {"GPU-1002", "GPU-9999"};
  EXPECT_EQ(chosen(idle_machine(4), {}, request), Gpus{2});
  request.count = 2;
  EXPECT_EQ(chosen(idle_machine(4), {}, request), std::nullopt);
  request.allowed = std::vector<std::string>();
  request.count = 1;
  EXPECT_EQ(chosen(idle_machine(4), {}, request), std::nullopt);
}

TEST(LeaseChoice, ExclusiveMeansAlone) {
  Machine machine = idle_machine(3);
  machine.gpus[1].free = GiB(70);  // A process without a lease uses 10 GiB.
  EXPECT_EQ(chosen(machine, {entry({{"GPU-1000", GiB(1)}})}, whole()), Gpus{2});
  EXPECT_EQ(chosen(machine, {entry({{"GPU-1000", GiB(1)}})}, whole(2)), std::nullopt);
  EXPECT_EQ(chosen(machine, {entry({{"GPU-1002", GiB(80)}}, 42, true)}, share(GiB(75))), Gpus{0});
  Request request = whole(2);
  request.foreign_allowed = GiB(10);
  EXPECT_EQ(chosen(machine, {entry({{"GPU-1000", GiB(1)}})}, request), (Gpus{1, 2}));
}

TEST(LeaseChoice, GangsGetTheBestLinks) {
  Machine machine = idle_machine(4);
  machine.links.assign(16, 1);
  const auto tie = [&](size_t a, size_t b) { machine.links[a * 4 + b] = machine.links[b * 4 + a] = 100; };
  tie(0, 2);
  tie(1, 3);
  machine.gpus[1].free = GiB(70);
  EXPECT_EQ(chosen(machine, {}, share(GiB(4), 2)), (Gpus{0, 2}));
  EXPECT_EQ(chosen(machine, {entry({{"GPU-1000", GiB(78)}})}, share(GiB(4), 2)), (Gpus{1, 3}));
  // GPUs without a lease come before better links.
  EXPECT_EQ(chosen(machine, {entry({{"GPU-1002", GiB(1)}})}, share(GiB(4), 2)), (Gpus{1, 3}));
  EXPECT_EQ(chosen(machine, {}, share(GiB(4), 5)), std::nullopt);
}

TEST(LeaseChoice, ManyGpusAreLinkedGreedily) {
  Machine machine = idle_machine(16);
  machine.links.assign(256, 1);
  for (size_t a = 8; a < 16; ++a)
    for (size_t b = 8; b < 16; ++b) machine.links[a * 16 + b] = 50;
  EXPECT_EQ(chosen(machine, {}, share(GiB(4), 8)), (Gpus{8, 9, 10, 11, 12, 13, 14, 15}));
}

TEST(LeaseChoice, AGangIsOfOneVendor) {
  Machine machine = idle_machine(5);
  for (size_t i = 0; i < 5; ++i) machine.gpus[i].vendor = i < 3 ? 0 : 1;
  machine.gpus[1].free = GiB(70);
  machine.gpus[2].free = GiB(10);
  // Together they have more free memory than 0 and 1.
  EXPECT_EQ(chosen(machine, {}, share(GiB(4), 2)), (Gpus{3, 4}));
  EXPECT_EQ(chosen(machine, {}, share(GiB(4), 3)), (Gpus{0, 1, 2}));
  EXPECT_EQ(chosen(machine, {}, share(GiB(4), 4)), std::nullopt);
  // The order is: GPUs without a lease, then the links, then the free memory.
  EXPECT_EQ(chosen(machine, {entry({{"GPU-1003", GiB(1)}})}, share(GiB(4), 2)), (Gpus{0, 1}));
  machine.links.assign(25, 1);
  machine.links[0 * 5 + 2] = machine.links[2 * 5 + 0] = 9;
  EXPECT_EQ(chosen(machine, {}, share(GiB(4), 2)), (Gpus{0, 2}));
  // A waiting request waits for GPUs of one vendor: those with the smallest shortage.
  const Ledger now = make_ledger(
      machine, {entry({{"GPU-1000", GiB(70)}, {"GPU-1001", GiB(70)}, {"GPU-1003", GiB(60)}})}, kView);
  EXPECT_EQ(choose_to_wait_for(machine, now, wish_of(share(GiB(30), 2))), (Gpus{4, 3}));
  EXPECT_EQ(choose_to_wait_for(machine, now, wish_of(share(GiB(30), 4))), std::nullopt);
}

// ---- Requests

Result<Request> parsed(std::vector<std::string> arguments) { return parse_request(arguments); }

TEST(LeaseRequest, ReadsTheLanguage) {
  std::vector<std::string> arguments = {"-n",        "2",  "--mem=20G", "--by", "power",
                                        "--wait=5m", "-v", "--",        "cmd",  "--mem"};
  const Request request = parse_request(arguments).value();
  EXPECT_EQ(request.count, 2);
  EXPECT_EQ(request.memory, GiB(20));
  EXPECT_FALSE(request.whole());
  EXPECT_EQ(request.by, By::power);
  EXPECT_EQ(request.wait_limit, std::chrono::minutes(5));
  EXPECT_EQ(arguments, (std::vector<std::string>{"-v", "--", "cmd", "--mem"}));
  EXPECT_TRUE(parsed({}).value().whole());
  EXPECT_EQ(parsed({"-n4"}).value().count, 4);
  EXPECT_TRUE(parsed({"--mem", "8GiB", "--exclusive"}).value().whole());
  EXPECT_FALSE(parsed({"--wait"}).value().wait_limit);
  EXPECT_TRUE(parsed({"--wait"}).value().wait);
}

TEST(LeaseRequest, MemoryIsAtLeastOneByte) {
  Request request;
  request.memory = Bytes(-1);
  EXPECT_EQ(check(request).message(), "asked for -1 bytes of memory: expected 1 or more");
}

TEST(LeaseRequest, RefusesWithOneLine) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--gpus", "0"}, "--gpus 0: expected a number of GPUs from 1 to 64"},
      {{"--gpus", "two"}, "--gpus two: expected a number of GPUs from 1 to 64"},
      {{"-n"}, "-n needs a value"},
      {{"--mem", "20"}, "--mem: size \"20\" has no unit"},
      {{"--mem", "20g"}, "--mem: size \"20g\" has the unknown unit \"g\""},
      {{"--mem", "1x\n\x1b[2J"}, "--mem: size \"1x\\x0a\\x1b[2J\" has the unknown unit \"x\\x0a\\x1b[2J\""},
      {{"--mem", "0"}, "--mem 0: a lease of no memory holds nothing"},
      {{"--mem", "0G"}, "--mem 0G: a lease of no memory holds nothing"},
      {{"--by", "luck"}, "--by luck: expected free, ratio, power or utilization"},
      {{"--share"}, "--share needs --mem: how much of each GPU?"},
      {{"--mem=1G", "--share", "--exclusive"}, "--share and --exclusive exclude each other"},
      {{"--wait=soon"}, "--wait: \"soon\" is no time"},
      {{"--wait=5"}, "--wait: \"5\" has no unit: write 5s, 5m (minutes), 5h or 5d"},
      {{"--wait=99999999999999999h"}, "--wait: \"99999999999999999h\" is no time"}};
  for (const auto& [arguments, message] : cases) {
    const Result<Request> result = parsed(arguments);
    ASSERT_FALSE(result.ok()) << message;
    EXPECT_EQ(result.status().message().substr(0, message.size()), message);
  }
}

TEST(LeaseRequest, ExpiresAfterATimeThatCanBe) {
  using std::chrono::milliseconds;
  Request request = whole();
  for (const milliseconds wrong : {milliseconds(-5000), milliseconds(0), milliseconds::max(),
                                   milliseconds::min(), milliseconds(kLongest) + milliseconds(1)}) {
    request.expires_after = wrong;
    EXPECT_EQ(check(request).code(), Code::invalid_argument) << wrong.count();
  }
  for (const milliseconds right : {milliseconds(1), milliseconds(kLongest)}) {
    request.expires_after = right;
    EXPECT_TRUE(check(request).ok()) << right.count();
  }
}

TEST(LeaseRequest, OptionsReadBackTheSame) {
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"--gpus", "1"},
           {"--gpus", "2", "--mem", "20G", "--share", "--by", "ratio", "--wait=90s"},
           {"--gpus", "8", "--mem", "1537M", "--exclusive", "--wait"}})
    EXPECT_EQ(to_options(parsed(options).value()), options);
}

// ---- The directory

TEST(LeaseDirectoryRules, NetworkFileSystemsAreNamed) {
  EXPECT_STREQ(remote_file_system(0x6969), "NFS");
  EXPECT_STREQ(remote_file_system(0x65735546), "FUSE");
  EXPECT_EQ(remote_file_system(0x01021994), nullptr);  // tmpfs
  EXPECT_EQ(remote_file_system(0xEF53), nullptr);      // ext4
}

}  // namespace
}  // namespace innkeeper::lease
