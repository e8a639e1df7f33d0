//! `mcpproxy apply`: changes tenants to match a file.
//!
//! The command reads and compares everything first, and shows the plan. It then applies the plan, except with `--dry-run`.
//! Nothing is deleted.

mod compare;
mod declared;
mod file;
mod logins;
mod oauth;
mod plan;
mod secrets;
mod step;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use http::Method;
use serde_json::Value;

use self::logins::IssuerPlan;
use self::plan::{ApplyPlan, PlannedHeaders, Planner};
use self::secrets::Secrets;
use self::step::{Mark, Step};
use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, text};
use super::upstream;

/// Longest time until every replica knows that a tenant is resumed.
const RESUMED_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause between retries at a replica that still takes a resumed tenant for suspended.
const RESUMED_PAUSE: Duration = Duration::from_millis(100);
/// Most tenants named among those that the file does not mention.
const OTHERS_NAMED_MAX: usize = 20;

/// `mcpproxy apply`
#[derive(Args)]
pub struct Apply {
    /// Tenants file (YAML); `-` is standard input
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: PathBuf,
    /// Show the changes without making them
    #[arg(long)]
    dry_run: bool,
    /// Set the servers' headers even if their names have not changed: values cannot be compared
    #[arg(long)]
    set_headers: bool,
    /// Write the secrets of new keys to this new file, which only you can read, instead of standard output
    #[arg(long, value_name = "FILE")]
    keys_out: Option<PathBuf>,
    #[command(flatten)]
    connection: ApiConnection,
}

/// Failures so far.
#[derive(Default)]
struct Outcome {
    failed: HashSet<String>,
    worst: Option<Failure>,
}

impl Outcome {
    /// Reports the failure of a tenant, or of the thing at `place` in it.
    fn fail(&mut self, tenant: &str, place: Option<&str>, failure: Failure) {
        output::note(&output::one_line(&format!("mcpproxy: {}: {failure}", place.unwrap_or(tenant))));
        self.failed.insert(tenant.to_owned());
        if self.worst.as_ref().is_none_or(|worst| worst.code() < failure.code()) {
            self.worst = Some(failure);
        }
    }

    fn end(self, things: usize) -> Result<(), Failure> {
        let failed = self.failed.len();
        match self.worst {
            None => Ok(()),
            Some(worst) => {
                Err(worst
                    .saying(format!("{failed} of {things} tenants and issuers are not what the file says")))
            }
        }
    }
}

impl Apply {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let wanted = file::read(&self.file)?;
        // each tenant is named by the file
        let platform = self.connection.client()?.in_tenant(None)?;
        let mut outcome = Outcome::default();
        let plans = self.plan(&platform, &wanted, &mut outcome).await?;
        let issuers = plan_issuers(&platform, &wanted, &mut outcome).await?;
        let steps = || {
            let of_tenants = plans.iter().flat_map(ApplyPlan::all);
            of_tenants.chain(issuers.iter().flat_map(|plan| &plan.steps))
        };
        if outcome.worst.is_none() && steps().next().is_none() {
            return output::line("nothing to change");
        }
        let lines: Vec<String> = steps().flat_map(Step::shown).map(|line| output::one_line(&line)).collect();
        // no change is made that was not shown
        let unshown = |_| Failure::Refused("the plan could not be shown: nothing was done".to_owned());
        lines
            .iter()
            .chain([&counts(&plans, &issuers)])
            .try_for_each(|line| output::line(line))
            .map_err(unshown)?;
        if !self.dry_run {
            let path = self.keys_out.as_deref().filter(|_| steps().any(Step::makes_key));
            let mut secrets = Secrets::open(path)?;
            for plan in &plans {
                apply(&platform, plan, &mut secrets, &mut outcome).await?;
            }
            secrets.close();
            apply_logins(&platform, &plans, &issuers, &mut outcome).await?;
            suspend(&platform, &plans, &mut outcome).await?;
        }
        outcome.end(wanted.tenants.len() + wanted.issuers.iter().flatten().count())
    }

    /// Returns a plan for each tenant that can be changed to match the file. Reports the other tenants as failures.
    async fn plan(
        &self,
        platform: &ApiClient,
        wanted: &file::File,
        outcome: &mut Outcome,
    ) -> Result<Vec<ApplyPlan>, Failure> {
        let there = platform.list(&["tenants"], &ApiQuery::default(), usize::MAX).await?;
        let there: Vec<Value> =
            there.iter().map(|item| serde_json::from_str(item.get()).unwrap_or_default()).collect();
        let there: HashSet<String> = there.iter().map(|tenant| text(tenant, "name")).collect();
        let headers = if self.set_headers { PlannedHeaders::Again } else { PlannedHeaders::WhenNamesDiffer };
        let mut plans = Vec::new();
        for tenant in &wanted.tenants {
            let client = platform.in_tenant(Some(&tenant.name))?;
            let planner = Planner { platform, client: &client, tenant, headers };
            match planner.plan(there.contains(&tenant.name)).await {
                Ok(plan) => plans.push(plan),
                Err(failure) => outcome.fail(&tenant.name, None, failure),
            }
        }
        note_others(there, wanted, &plans);
        Ok(plans)
    }
}

/// Reports tenants and things that exist and are not in the file. They stay as they are.
fn note_others(there: HashSet<String>, wanted: &file::File, plans: &[ApplyPlan]) {
    let named: HashSet<&str> = wanted.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    let mut others: Vec<String> = there.into_iter().filter(|name| !named.contains(&**name)).collect();
    others.sort_unstable();
    let more = others.len().saturating_sub(OTHERS_NAMED_MAX);
    others.truncate(OTHERS_NAMED_MAX);
    if more > 0 {
        others.push(format!("{more} more tenants"));
    }
    for other in others.iter().chain(plans.iter().flat_map(|plan| &plan.others)) {
        output::note(&output::one_line(&format!("not in the file: {other}")));
    }
}

/// Returns a summary: how many things are created, changed and left alone.
fn counts(plans: &[ApplyPlan], issuers: &[IssuerPlan]) -> String {
    let mut places: HashMap<&str, Mark> = HashMap::new();
    let of_issuers = issuers.iter().flat_map(|plan| &plan.steps);
    for step in plans.iter().flat_map(ApplyPlan::all).chain(of_issuers) {
        // a new tenant that is given quotas counts once, as a new one
        let place = step.place.strip_prefix("tenant ").unwrap_or(&step.place);
        places.entry(place).or_insert(step.mark);
    }
    let things = plans.iter().map(|plan| plan.things).sum::<usize>() + issuers.len();
    let made = places.values().filter(|mark| **mark == Mark::Make).count();
    let changed = places.len() - made;
    format!("{made} to create, {changed} to change, {} unchanged", things - places.len())
}

/// Returns a plan for each issuer that can be changed to match the file. Reports the other issuers as failures.
async fn plan_issuers(
    platform: &ApiClient,
    wanted: &file::File,
    outcome: &mut Outcome,
) -> Result<Vec<IssuerPlan>, Failure> {
    let Some(wanted) = &wanted.issuers else { return Ok(Vec::new()) };
    let there = platform.list(&["issuers"], &ApiQuery::default(), usize::MAX).await?;
    let there: Vec<Value> =
        there.iter().map(|item| serde_json::from_str(item.get()).unwrap_or_default()).collect();
    let mut plans = Vec::new();
    for issuer in wanted {
        let is = there.iter().find(|is| text(is, "name") == issuer.name);
        match issuer.plan(platform, is).await {
            Ok(plan) => plans.push(plan),
            Err(failure) => outcome.fail(&format!("issuers/{}", issuer.name), None, failure),
        }
    }
    for other in logins::others(&there, wanted) {
        output::note(&output::one_line(&format!("not in the file: {other}")));
    }
    Ok(plans)
}

/// Applies the plans of issuers, whose tenants exist by now, and then the steps of tenants that name issuers.
async fn apply_logins(
    platform: &ApiClient,
    plans: &[ApplyPlan],
    issuers: &[IssuerPlan],
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    for plan in issuers {
        for step in &plan.steps {
            if let Err(failure) = step.run(platform, platform).await {
                outcome.fail(&format!("issuers/{}", plan.name), Some(&step.place), failure);
                break;
            }
        }
    }
    for plan in plans.iter().filter(|plan| !plan.late.is_empty()) {
        let client = platform.in_tenant(Some(&plan.tenant))?;
        for step in &plan.late {
            if outcome.failed.contains(&plan.tenant) {
                break;
            }
            match step.run(platform, &client).await {
                Ok(answer) if step.path.first().is_some_and(|first| first == "servers") => {
                    upstream::warn(&answer.json()?);
                }
                Ok(_) => {}
                Err(failure) => {
                    let place = match step.place == plan.tenant {
                        true => format!("{}/identity_rules", plan.tenant),
                        false => step.place.clone(),
                    };
                    outcome.fail(&plan.tenant, Some(&place), failure);
                }
            }
        }
    }
    Ok(())
}

/// Suspends the tenants that should be, even if a step before failed.
async fn suspend(platform: &ApiClient, plans: &[ApplyPlan], outcome: &mut Outcome) -> Result<(), Failure> {
    for plan in plans {
        let Some(step) = &plan.suspend else { continue };
        let client = platform.in_tenant(Some(&plan.tenant))?;
        if let Err(failure) = step.run(platform, &client).await {
            outcome.fail(&plan.tenant, Some(&step.place), failure);
        }
    }
    Ok(())
}

/// Applies the plan of one tenant.
async fn apply(
    platform: &ApiClient,
    plan: &ApplyPlan,
    secrets: &mut Secrets<'_>,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let client = platform.in_tenant(Some(&plan.tenant))?;
    let mut resumed = None;
    for step in &plan.steps {
        if let Err(failure) = apply_step(platform, &client, plan, step, resumed, secrets).await {
            outcome.fail(&plan.tenant, Some(&step.place), failure);
            break;
        }
        if step.path.last().is_some_and(|last| last == "resume") {
            resumed = Some(Instant::now());
        }
    }
    Ok(())
}

async fn apply_step(
    platform: &ApiClient,
    client: &ApiClient,
    plan: &ApplyPlan,
    step: &Step,
    resumed: Option<Instant>,
    secrets: &mut Secrets<'_>,
) -> Result<(), Failure> {
    if step.makes_key() {
        secrets.check()?;
    }
    let answer = loop {
        match step.run(platform, client).await {
            // this replica does not know yet that the tenant is resumed
            Err(Failure::NotAuthorised(_)) if resumed.is_some_and(|at| at.elapsed() < RESUMED_WAIT_MAX) => {
                tokio::time::sleep(RESUMED_PAUSE).await;
            }
            Err(Failure::Unreachable(sentence)) if step.makes_key() => {
                return Err(Failure::Unreachable(format!(
                    "{sentence}; it may have been made all the same, with a secret that nobody has: look at \
                     `mcpproxy key list --tenant {}`, and revoke it there before you run this again",
                    plan.tenant
                )));
            }
            // a removal is answered with nothing
            answer if step.method == Method::DELETE => break answer.map(|_| Value::Null)?,
            answer => break answer?.json()?,
        }
    };
    if step.makes_key() {
        secrets.give(&plan.tenant, &answer)?;
    }
    if step.path.first().is_some_and(|first| first == "servers") {
        upstream::warn(&answer);
    }
    Ok(())
}
