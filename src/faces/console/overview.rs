//! Overview of the first page: what waits for a person, servers in trouble, and the calls of the last hour.

pub(super) mod chart;

use chrono::{DateTime, Utc};

use self::chart::CallChart;
use super::moment::{Moment, duration};
use super::nav::Section;
use super::permissions;
use super::text::{short, short_told};
use crate::domain::consent::ConsentState;
use crate::domain::id::TenantId;
use crate::domain::reason::Language;
use crate::domain::tenant::Action;
use crate::faces::query::server::last_error;
use crate::gateway::{Caller, ConsentView, Gateway, GatewayError, ServerState};
use crate::store::{CallSummary, ConsentFilter, ConsentOrder};

/// Most tools in a list.
const TOOLS_MAX: usize = 5;
/// Most permission requests in a list.
const REQUESTS_MAX: i64 = 5;
/// Most servers in a list.
const SERVERS_MAX: usize = 20;
/// Most servers that are named beside what waits at them.
const WAITING_SERVERS_MAX: usize = 10;
/// Most servers that are read for their errors.
const SERVERS_READ: i64 = 100;
/// Longest error in a list, in characters.
const REASON_CHARS_MAX: usize = 200;
/// Longest name in a list, in characters.
const NAME_CHARS_MAX: usize = 80;

/// Number of things that wait for a person, with a link to them.
pub(super) struct WaitingThings {
    /// Link to them: the page of the one server that has them, or a list.
    pub(super) href: String,
    /// Number and kind, such as `2 permission requests`.
    pub(super) what: String,
    /// Servers that have them, those with the most first.
    pub(super) servers: Vec<WaitingServer>,
    /// Number of servers that have some and are not listed.
    pub(super) more_servers: usize,
}

/// Permission request that waits.
pub(super) struct WaitingRequest {
    /// Link to the request.
    pub(super) href: String,
    /// Action of the call, in words.
    pub(super) told: String,
    /// Canonical name of the tool.
    pub(super) tool: String,
    /// Level of risk.
    pub(super) risk: &'static str,
    /// Owner of the key that asks.
    pub(super) owner: String,
    /// End of the time for an answer.
    pub(super) expires: Moment,
}

/// Server at which something waits for a person.
pub(super) struct WaitingServer {
    /// Name of the server.
    pub(super) name: String,
    /// Path of its page.
    pub(super) href: String,
    /// Number of things that wait there, at least 1.
    pub(super) number: usize,
}

/// Server in trouble.
pub(super) struct TroubledServer {
    /// Name of the server.
    pub(super) name: String,
    /// Path of its page.
    pub(super) href: String,
    /// Trouble in words.
    pub(super) trouble: &'static str,
    /// Last error of the server; empty if there is none, or it was not read.
    pub(super) reason: String,
}

/// Tool in a list.
pub(super) struct ToolUse {
    /// Canonical name of the tool.
    pub(super) name: String,
    /// Link to its records.
    pub(super) href: String,
    /// Number of calls.
    pub(super) calls: i64,
    /// Number of calls that failed.
    pub(super) failed: i64,
    /// Number of calls that were refused.
    pub(super) refused: i64,
    /// Median duration; empty if no call has ended.
    pub(super) p50: String,
    /// 95th percentile of the duration; empty if no call has ended.
    pub(super) p95: String,
}

/// Calls of the last hour.
pub(super) struct HourOfCalls {
    /// Chart of the calls.
    pub(super) chart: CallChart,
    /// Tools with the most calls.
    pub(super) used: Vec<ToolUse>,
    /// Tools with the longest durations.
    pub(super) slowest: Vec<ToolUse>,
}

/// Overview of a tenant for one visitor.
pub(super) struct Overview {
    /// True if the calls are those of the visitor's own key alone.
    pub(super) is_own: bool,
    /// Things that wait for a person.
    pub(super) waiting: Vec<WaitingThings>,
    /// Permission requests that wait, the highest risk first, and of those the oldest.
    pub(super) requests: Vec<WaitingRequest>,
    /// True if the permission requests are counted.
    pub(super) knows_requests: bool,
    /// True if the visitor may see servers.
    pub(super) sees_servers: bool,
    /// True if the servers are known on this replica.
    pub(super) knows_servers: bool,
    /// Servers in trouble.
    pub(super) troubled: Vec<TroubledServer>,
    /// Number of servers in trouble that are not listed.
    pub(super) more_troubled: usize,
    /// Calls of the last hour; `None` for a role that sees none, and if they could not be counted.
    pub(super) hour: Option<HourOfCalls>,
    /// Reason why the calls could not be counted; `None` if they were.
    pub(super) failure: Option<String>,
}

impl Overview {
    /// Makes the overview for a visitor who reads this language, for whom this number of permission requests waits; `None` for the platform operator, who is in no tenant.
    pub(super) async fn of(
        gateway: &Gateway,
        (caller, language): (&Caller, Language),
        now: DateTime<Utc>,
        requests: Option<i64>,
    ) -> Option<Overview> {
        if caller.tenant_id() == TenantId::PLATFORM {
            return None;
        }
        let sees_servers = Section::Servers.is_open_to(caller);
        let states = caller.catalogue().filter(|_| sees_servers).map(|catalogue| catalogue.states());
        let knows_servers = states.is_some();
        let states: Vec<(&str, &ServerState)> = match &states {
            Some(states) => states.iter().map(|(name, state)| (name.as_str(), state)).collect(),
            None => Vec::new(),
        };
        let mut troubled: Vec<TroubledServer> = states.iter().filter_map(|state| trouble(*state)).collect();
        let more_troubled = troubled.len().saturating_sub(SERVERS_MAX);
        troubled.truncate(SERVERS_MAX);
        add_reasons(gateway, caller, &mut troubled).await;
        let counted = match caller.role.may(Action::ReadOwnActivity) {
            true => hour(gateway, caller, now).await.map(Some),
            false => Ok(None),
        };
        let (hour, failure) = match counted {
            Ok(hour) => (hour, None),
            Err(error) => (None, Some(error.to_string())),
        };
        Some(Overview {
            is_own: !caller.role.may(Action::ReadActivity),
            requests: match requests {
                Some(1..) => riskiest(gateway, (caller, language), now).await,
                _ => Vec::new(),
            },
            waiting: waiting(requests.unwrap_or_default(), &states),
            knows_requests: requests.is_some(),
            sees_servers,
            knows_servers,
            troubled,
            more_troubled,
            hour,
            failure,
        })
    }
}

/// Returns a number with its noun.
fn counted(number: i64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn waiting(requests: i64, states: &[(&str, &ServerState)]) -> Vec<WaitingThings> {
    let requests = (requests > 0).then(|| WaitingThings {
        href: Section::Permissions.href().to_owned(),
        what: counted(requests, "permission request"),
        servers: Vec::new(),
        more_servers: 0,
    });
    let tools = at_servers(
        states,
        |state| state.pending + state.changed,
        |number| format!("{} to review", counted(number, "tool")),
    );
    let tools = tools.map(|tools| tools.leading(|server| format!("{server}?state=waiting#tools")));
    let quarantined = at_servers(
        states,
        |state| usize::from(state.quarantined),
        |number| format!("{} in quarantine", counted(number, "server")),
    );
    let offers = at_servers(
        states,
        |state| state.waiting_offers,
        |number| match number {
            1 => "1 prompt or resource to review".to_owned(),
            number => format!("{number} prompts and resources to review"),
        },
    );
    let offers = offers.map(|offers| offers.leading(|server| format!("{server}/offers?state=waiting")));
    [requests, tools, offers, quarantined].into_iter().flatten().collect()
}

impl WaitingThings {
    /// Has the links to servers lead to what waits there. `to` makes the link of a server's path.
    fn leading(mut self, to: fn(&str) -> String) -> WaitingThings {
        if self.servers.len() == 1 {
            self.href = to(&self.href);
        }
        self.servers.iter_mut().for_each(|server| server.href = to(&server.href));
        self
    }
}

/// Returns what waits at servers, with the servers that have the most of it; `None` if nothing does.
fn at_servers(
    states: &[(&str, &ServerState)],
    number_of: fn(&ServerState) -> usize,
    what: fn(i64) -> String,
) -> Option<WaitingThings> {
    let all = states.iter().map(|(name, state)| WaitingServer {
        name: (*name).to_owned(),
        href: format!("{}/{name}", Section::Servers.href()),
        number: number_of(state),
    });
    let mut servers: Vec<_> = all.filter(|server| server.number > 0).collect();
    let sum = servers.iter().map(|server| server.number).sum::<usize>();
    servers.sort_by(|one, other| other.number.cmp(&one.number).then_with(|| one.name.cmp(&other.name)));
    let more_servers = servers.len().saturating_sub(WAITING_SERVERS_MAX);
    servers.truncate(WAITING_SERVERS_MAX);
    let first = servers.first()?;
    let href = if servers.len() == 1 { first.href.clone() } else { Section::Servers.href().to_owned() };
    Some(WaitingThings { href, what: what(i64::try_from(sum).unwrap_or(i64::MAX)), servers, more_servers })
}

/// Returns the permission requests of the highest risk that wait, the oldest first; none if they cannot be read now.
async fn riskiest(
    gateway: &Gateway,
    (caller, language): (&Caller, Language),
    now: DateTime<Utc>,
) -> Vec<WaitingRequest> {
    let filter = ConsentFilter {
        state: Some(ConsentState::Pending),
        order: ConsentOrder::Riskiest,
        ..ConsentFilter::default()
    };
    let views = gateway.consent.list(caller, filter, REQUESTS_MAX).await.unwrap_or_default();
    let request = |view: &ConsentView| WaitingRequest {
        href: permissions::href_of(view.row.id),
        told: short_told(&view.told_shortly(language), NAME_CHARS_MAX),
        tool: short(&format!("{}:{}", view.row.server, view.row.tool), NAME_CHARS_MAX),
        risk: view.risk.as_str(),
        owner: short(&view.row.owner, NAME_CHARS_MAX),
        expires: Moment::new(view.row.expires_at, now),
    };
    views.iter().map(request).collect()
}

fn trouble((name, state): (&str, &ServerState)) -> Option<TroubledServer> {
    let is_in_trouble = state.enabled && !state.connected;
    is_in_trouble.then(|| TroubledServer {
        name: name.to_owned(),
        href: format!("{}/{name}", Section::Servers.href()),
        trouble: "not connected",
        reason: String::new(),
    })
}

/// Adds the last errors of servers in trouble, with one query. Those of servers beyond the first by name, or that cannot be read now, stay
/// empty.
async fn add_reasons(gateway: &Gateway, caller: &Caller, troubled: &mut [TroubledServer]) {
    if troubled.is_empty() {
        return;
    }
    let servers = gateway.servers.list_servers(caller, "", SERVERS_READ).await.unwrap_or_default();
    for server in troubled {
        let found = servers.iter().find(|found| found.name == server.name);
        let error = found.and_then(last_error).map(|error| short(&error, REASON_CHARS_MAX));
        server.reason = error.unwrap_or_default();
    }
}

async fn hour(gateway: &Gateway, caller: &Caller, now: DateTime<Utc>) -> Result<HourOfCalls, GatewayError> {
    let hour = gateway.log.recent_hour(caller, chart::range(now)).await?;
    let uses = |tools: &[CallSummary]| tools.iter().take(TOOLS_MAX).map(tool_use).collect();
    Ok(HourOfCalls {
        chart: CallChart::of(&hour.minutes, hour.start),
        used: uses(&hour.summary.tools),
        slowest: uses(&hour.summary.slowest),
    })
}

fn tool_use(tool: &CallSummary) -> ToolUse {
    let name = format!("{}:{}", tool.server, tool.tool.as_deref().unwrap_or_default());
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("server", &tool.server);
    query.append_pair("tool", tool.tool.as_deref().unwrap_or_default());
    let time = |ms: Option<f64>| ms.map(duration).unwrap_or_default();
    ToolUse {
        href: format!("{}?{}", Section::Activity.href(), query.finish()),
        name: short(&name, NAME_CHARS_MAX),
        calls: tool.calls,
        failed: tool.failed,
        refused: tool.refused,
        p50: time(tool.p50_ms),
        p95: time(tool.p95_ms),
    }
}
