//! Instructions and allocations per call, counted by Valgrind's callgrind. Unlike times they hardly depend on the machine, so
//! CI holds the gateway to a budget of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::gateway::Gateway;
use crate::load::{self, Door, Era, Until, Work};
use crate::report::table;
use crate::say;

/// The word that asks for this run.
pub const WORD: &str = "budget";
/// The budgets, by the name of the load.
const FILE: &str = "tests/bench/budget.json";
/// Variable that names a folder in which callgrind's files are kept, for `callgrind_annotate`.
const KEEP: &str = "BUDGET_DIR";
/// Clients at the same time.
const CLIENTS: usize = 16;
/// Answers that are not counted: they fill caches and open connections.
const WARM_UP: u64 = 300;
/// Answers that are counted.
const COUNTED: u64 = 800;
/// Time in which a gateway under callgrind writes what belongs to the last calls.
const REST: Duration = Duration::from_secs(2);
/// Share of a budget by which a count may be above it: thread schedules and processors differ.
const ABOVE_MAX: f64 = 0.10;
/// Share of a budget by which a count may be below it before the budget counts as out of date.
const BELOW_MAX: f64 = 0.10;
/// Setting of the C library: large blocks are copied and filled by the same instructions on every processor. Callgrind counts
/// the iterations of the string instructions that the newer ones have, one for each byte.
const LIBC: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824",
);
/// Functions of the allocator that hand out memory.
const ALLOCATING: [&str; 6] = [
    "_rjem_malloc",
    "_rjem_mallocx",
    "_rjem_calloc",
    "_rjem_realloc",
    "_rjem_rallocx",
    "_rjem_posix_memalign",
];

/// Cost of one call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cost {
    /// Instructions of the gateway's process.
    instructions: u64,
    /// Calls of its allocator for memory, also for more of it.
    allocations: u64,
}

impl Cost {
    /// Returns whether this is more than a budget allows.
    fn is_above(&self, budget: &Cost) -> bool {
        is_above(self.instructions, budget.instructions) || is_above(self.allocations, budget.allocations)
    }

    /// Returns the lower of both, part by part.
    fn or_less(self, other: Cost) -> Cost {
        Cost {
            instructions: self.instructions.min(other.instructions),
            allocations: self.allocations.min(other.allocations),
        }
    }
}

fn is_above(count: u64, budget: u64) -> bool {
    count as f64 > budget as f64 * (1.0 + ABOVE_MAX)
}

/// Caller of a load.
#[derive(Clone, Copy)]
enum By {
    /// A key.
    Key,
    /// A key of the tenant with 1000 tools.
    CataloguesKey,
    /// A token of an identity provider.
    Token,
}

/// Every kind of load that has a budget: its name, the work, who sends it.
const LOADS: [(&str, Work, By); 7] = [
    ("read", Work::Read, By::Key),
    ("read with a token", Work::Read, By::Token),
    ("read of 10 kB", Work::ReadBig, By::Key),
    ("read, /mcp/direct", Work::ReadDirect, By::Key),
    ("write", Work::Write, By::Key),
    ("tools/list of 1000 tools, /mcp/direct", Work::ListDirect, By::CataloguesKey),
    ("retrieve_tools, 1000 tools", Work::Search, By::CataloguesKey),
];

/// Counts every load on a replica of the gateway whose database this is, and returns the table. The keys are those of the
/// calls and of the catalogue, then a token.
///
/// # Errors
/// Valgrind is missing, an answer is wrong or missing, or a count is above its budget.
pub async fn run(database_url: &str, data_dir: &Path, keys: [&str; 3]) -> Result<String> {
    let kept = std::env::var_os(KEEP).map(PathBuf::from);
    let folder = tempfile::Builder::new().prefix("mcpproxy-budget-").tempdir()?;
    let folder = kept.as_deref().unwrap_or(folder.path());
    std::fs::create_dir_all(folder)?;
    let out = folder.join("callgrind");
    let valgrind = [
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        "--instr-atstart=no".to_owned(),
        "--trace-children=no".to_owned(),
        format!("--callgrind-out-file={}", out.display()),
        format!("--vgdb-prefix={}", folder.join("vgdb").display()),
    ];
    let gateway = Gateway::start_replica_under((&valgrind, LIBC), database_url, data_dir)?;
    let doors = keys.map(|key| gateway.door(key));
    let counter = Counter { pid: gateway.pid(), prefix: folder.join("vgdb"), out };
    let budgets = std::fs::read_to_string(FILE).with_context(|| FILE.to_owned())?;
    let budgets: BTreeMap<String, Cost> = serde_json::from_str(&budgets).with_context(|| FILE.to_owned())?;
    let (mut costs, mut dumps) = (BTreeMap::new(), 0);
    for era in [Era::Handshake, Era::Modern] {
        for (name, work, by) in LOADS {
            let name = format!("{name}, {}", era.revision());
            say(&format!("budget: {name}"));
            dumps += 1;
            let [calls, catalogue, person] = &doors;
            let door = match by {
                By::Key => calls,
                By::CataloguesKey => catalogue,
                By::Token => person,
            };
            let mut cost = counter.count(door, (work, era), dumps).await.with_context(|| gateway.log())?;
            if budgets.get(&name).is_some_and(|budget| cost.is_above(budget)) {
                // a connection to the database that is opened meanwhile is as much as a seventh of a load
                dumps += 1;
                cost = cost
                    .or_less(counter.count(door, (work, era), dumps).await.with_context(|| gateway.log())?);
            }
            costs.insert(name, cost);
        }
    }
    drop(gateway);
    judge(&costs, &budgets)
}

/// Access to a gateway that runs under callgrind.
struct Counter {
    pid: u32,
    prefix: PathBuf,
    out: PathBuf,
}

impl Counter {
    /// Counts a load, and puts callgrind's file in place as number `dump`.
    async fn count(&self, door: &Door, (work, era): (Work, Era), dump: u32) -> Result<Cost> {
        load::run(door, work, era, CLIENTS, Until::Answers(WARM_UP)).await?;
        tokio::time::sleep(REST).await;
        self.tell("instrumentation on")?;
        load::run(door, work, era, CLIENTS, Until::Answers(COUNTED)).await?;
        tokio::time::sleep(REST).await;
        self.tell("dump")?;
        self.tell("instrumentation off")?;
        let file = self.out.with_extension(dump.to_string());
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let (instructions, allocations) = read(&text)?;
        Ok(Cost { instructions: instructions / COUNTED, allocations: allocations / COUNTED })
    }

    /// Gives an order to callgrind.
    fn tell(&self, order: &str) -> Result<()> {
        let mut vgdb = Command::new("vgdb");
        vgdb.arg(format!("--pid={}", self.pid)).arg(format!("--vgdb-prefix={}", self.prefix.display()));
        let told = vgdb.args(order.split(' ')).output().context("vgdb, a part of Valgrind, is missing")?;
        ensure!(told.status.success(), "vgdb {order}: {}", String::from_utf8_lossy(&told.stderr));
        Ok(())
    }
}

/// Reads instructions and allocations from a file of callgrind. Names in it are written once, and referred to by number.
fn read(text: &str) -> Result<(u64, u64)> {
    let mut instructions = None;
    let mut allocators = Vec::new();
    let (mut calls_allocator, mut allocations) = (false, 0_u64);
    for line in text.lines() {
        if let Some(total) = line.strip_prefix("totals: ") {
            instructions = Some(total.trim().parse::<u64>()?);
        } else if let Some(function) = line.strip_prefix("cfn=").or_else(|| line.strip_prefix("fn=")) {
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            if ALLOCATING.contains(&name) {
                allocators.push(number.to_owned());
            }
            calls_allocator = line.starts_with('c') && allocators.iter().any(|known| known == number);
        } else if let Some(calls) = line.strip_prefix("calls=").filter(|_| calls_allocator) {
            allocations += calls.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
    }
    ensure!(allocations > 0, "no function of the allocator was seen: the program was built without symbols");
    Ok((instructions.context("callgrind's file has no total")?, allocations))
}

/// Compares counts with the budgets, and returns the table.
fn judge(costs: &BTreeMap<String, Cost>, budgets: &BTreeMap<String, Cost>) -> Result<String> {
    let written = serde_json::to_string_pretty(costs)?;
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    for (name, cost) in costs {
        let Some(budget) = budgets.get(name) else {
            faults.push(format!("{name} has no budget"));
            continue;
        };
        let mut row = vec![name.clone()];
        for (what, count, allowed) in [
            ("instructions", cost.instructions, budget.instructions),
            ("allocations", cost.allocations, budget.allocations),
        ] {
            let ratio = count as f64 / allowed as f64;
            row.extend([count.to_string(), allowed.to_string(), format!("{:+.1} %", (ratio - 1.0) * 100.0)]);
            if is_above(count, allowed) {
                faults.push(format!("{name}: {count} {what}, the budget is {allowed}"));
            } else if ratio < 1.0 - BELOW_MAX {
                say(&format!("{name}: {count} {what}; the budget of {allowed} can be lowered"));
            }
        }
        rows.push(row);
    }
    let mut out = String::new();
    let columns = ["load", "instructions", "budget", "off", "allocations", "budget", "off"];
    table(&mut out, &format!("Cost of a call, {CLIENTS} clients"), &columns, &rows);
    if !faults.is_empty() {
        bail!("{out}\nabove budget ({FILE}):\n{}\ncounted now:\n{written}", faults.join("\n"));
    }
    Ok(out)
}
