//! `retrieve_tools`: search over the snapshot (behaviour, section 5), without database or upstream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::disclosure::is_disclosed;
use super::{Search, embeddings};
use crate::domain::activity::{RecordKind, Status};
use crate::domain::annotations::Tier;
use crate::domain::id::is_name;
use crate::domain::intent::IntentMode;
use crate::domain::refusal::Refusal;
use crate::domain::search::{Design, Embedding, Hits};
use crate::domain::text_enum::text_enum;
use crate::domain::{json, redact};
use crate::gateway::catalog::{Away, Tool, View};
use crate::gateway::log::{Attempt, record_unavailable};
use crate::gateway::tenants::Caller;
use crate::gateway::tenants::{Shed, overloaded};
use crate::gateway::{RecordUnavailable, clock};
use crate::upstream::{FREE_BYTES_MAX, MemoryHold, MemoryPurpose, MemoryShort};

/// Default of [`SearchRequest::limit`].
pub const LIMIT_DEFAULT: usize = 15;
/// Largest value of [`SearchRequest::limit`].
pub const LIMIT_MAX: usize = 100;

/// Request for a search.
#[derive(Clone, Debug)]
pub struct SearchRequest {
    /// Search text.
    pub query: String,
    /// Most tools to return, 1 to 100.
    pub limit: usize,
    /// Server whose tools are searched; `None` for all servers.
    pub server: Option<String>,
    /// True to return only tools of tier read.
    pub read_only_only: bool,
    /// True to leave out tools of tier destructive.
    pub exclude_destructive: bool,
    /// True to search also the tools of web pages that are disclosed on request.
    pub include_site_tools: bool,
    /// Level of detail of each tool.
    pub detail: Detail,
}

text_enum! {
    /// Level of detail of each tool in a search result.
    #[derive(Default)]
    pub enum Detail {
        /// The whole definition.
        #[default]
        Full = "full",
        /// A signature and a sentence.
        Compact = "compact",
    }
}

/// Value of `ranking` in an answer without the scores of an embeddings service.
const RANKING: &str = "bm25";
const RANKING_WITH_EMBEDDINGS: &str = "bm25+embeddings";

/// Longest part of a query that is searched for, in bytes; what follows is left out.
pub(super) const QUERY_BYTES_MAX: usize = 4096;
/// Most bytes of all entries of an answer: later entries are left out. The best match is never left out.
const ENTRIES_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes that an answer adds to each entry for the tool's variant and score.
const ENTRY_EXTRA_BYTES: usize = 64;
/// Memory taken for an answer, as a multiple of its entries. Over MCP an answer has them twice, once with
/// every quote escaped.
const FORMS: usize = 3;
/// Longest wait of an answer for memory.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(5);
/// Most servers named because their tools nearly matched.
const NEAR_NAMED_MAX: usize = 3;
/// Most servers named as missing.
const MISSING_NAMED_MAX: usize = 20;

/// Answer of a search, as one JSON object.
#[derive(Debug, Default)]
pub struct SearchResult {
    /// `{tools, total, ranking, query, usage_instructions}`
    pub json: String,
    /// Servers, up to a bound, whose tools were left out because they are not connected. The usage instructions name them
    /// too.
    pub missing: Vec<String>,
    /// Memory for the answer in any form; `None` if the answer is small.
    pub memory: Option<MemoryHold>,
}

impl Search {
    /// Searches the tools that the caller can see. Filters apply before the limit; `total` counts all matches. Waits at most
    /// shortly, for the query's vector or for memory.
    ///
    /// # Errors
    /// A refusal by the rate limit, by a full activity log, or for lack of memory for the answer.
    pub async fn retrieve_tools(
        &self,
        attempt: &Attempt,
        request: &SearchRequest,
    ) -> Result<SearchResult, Refusal> {
        if let Err(refusal) = self.tenants.limits.admit(&attempt.caller, Instant::now()) {
            self.tenants.limits.count_shed(&attempt.caller, Shed::Search, attempt.started_at);
            return Err(refusal);
        }
        let begun = self.log.activity.begin(attempt.record(RecordKind::Search));
        let (request, is_cut) = (&request.searched(), request.query.len() > QUERY_BYTES_MAX);
        let mut pending = begun.map_err(|RecordUnavailable| record_unavailable())?;
        let vector = self.vector_of(&attempt.caller, &request.query).await;
        let record = &mut pending.record;
        let searched = self.search(&attempt.caller, (request, is_cut), vector.as_deref()).await;
        let preview = redact::preview(&request.query, self.options.preview_bytes);
        record.status = Status::Success;
        // an invalid name belongs to no server, and may be a text of any length
        record.server = request.server.clone().filter(|name| is_name(name));
        record.tool = Some("retrieve_tools".to_owned());
        record.request_bytes = i64::try_from(request.query.len()).ok();
        record.arguments = Some(preview.text);
        record.truncated = preview.truncated;
        match &searched {
            Ok((found, total)) => {
                record.response_bytes = i64::try_from(found.json.len()).ok();
                record.response = Some(format!("{total} matches"));
            }
            Err(refusal) => {
                record.status = Status::Rejected;
                record.error_code = Some(refusal.code.as_str().to_owned());
                record.error_message = Some(refusal.message.clone());
            }
        }
        record.duration_ms = Some(clock::milliseconds(attempt.started.elapsed()));
        pending.close();
        searched.map(|(found, _)| found)
    }

    /// Takes memory for an answer with entries of so many bytes; `None` if the answer is small.
    async fn memory_for(&self, caller: &Caller, entries: usize) -> Result<Option<MemoryHold>, Refusal> {
        if FORMS * entries <= FREE_BYTES_MAX {
            return Ok(None);
        }
        let mut memory = self.tenants.memory(caller, MemoryPurpose::Answer).waiting(MEMORY_WAIT_MAX);
        match memory.grow(FORMS * entries).await {
            Ok(()) => Ok(Some(memory)),
            Err(MemoryShort) => Err(overloaded(MemoryPurpose::Answer)),
        }
    }

    async fn search(
        &self,
        caller: &Caller,
        (request, is_cut): (&SearchRequest, bool),
        question: Option<&Embedding>,
    ) -> Result<(SearchResult, usize), Refusal> {
        let mut missing = Missing::default();
        let mut memory = None;
        let mut out = String::from(r#"{"tools":["#);
        let (mut total, mut left_out) = (0, 0);
        let mut near = Vec::new();
        let mut ranking = RANKING;
        if let Some(tenant) = &caller.tenant {
            let catalogue = tenant.catalogue();
            let view = catalogue.view_soon(&caller.settings).await;
            missing = Missing::of(&view, request);
            let admit = |position: u32| {
                let Some(tier) = view.tier(position) else { return false };
                let tool = catalogue.listed().get(position as usize);
                let server = request.server.as_deref();
                let is_wanted = request.wants(tier)
                    && server.is_none_or(|name| tool.is_some_and(|tool| tool.server.name == name));
                let includes_sites = request.include_site_tools;
                let is_open = |server| is_disclosed(server, &request.query, includes_sites);
                is_wanted && tool.is_none_or(|tool| is_open(&tool.server))
            };
            let index = catalogue.index().await;
            let scope = view.search_scope(index);
            let nearness =
                question.and_then(|question| embeddings::nearness(tenant, &catalogue, scope, question));
            if nearness.is_some() {
                ranking = RANKING_WITH_EMBEDDINGS;
            }
            let design = Design { nearness: nearness.as_ref(), ..Design::default() };
            let found = index.search_with(design, scope, &request.query, request.limit, admit);
            total = found.total;
            near = near_servers(catalogue.listed(), &found);
            let entries = found.hits.iter().filter_map(|hit| {
                let tool = catalogue.listed().get(hit.document as usize)?;
                let entry = match request.detail {
                    Detail::Full => &tool.shape.entry,
                    Detail::Compact => &tool.shape.compact,
                };
                Some((entry, view.tier(hit.document)?, hit.score))
            });
            let entries: Vec<_> = entries.collect();
            let bytes = entries.iter().map(|(entry, ..)| entry.len() + ENTRY_EXTRA_BYTES).sum::<usize>();
            memory = self.memory_for(caller, bytes.min(ENTRIES_BYTES_MAX)).await?;
            for (n, (entry, tier, score)) in entries.iter().enumerate() {
                if n > 0 && out.len() + entry.len() > ENTRIES_BYTES_MAX {
                    left_out = entries.len() - n;
                    break;
                }
                add_entry(&mut out, entry, *tier, *score);
            }
        }
        out.push_str(r#"],"total":"#);
        out.push_str(&total.to_string());
        out.push_str(r#","ranking":""#);
        out.push_str(ranking);
        out.push_str(r#"","query":"#);
        json::escape_into(&mut out, &request.query);
        out.push_str(r#","usage_instructions":"#);
        let usage = usage(caller.settings.intent_declaration);
        let notes =
            [compact(request.detail), cut(left_out), nearly(&near), missing.sentence(), shortened(is_cut)];
        let sentences: Vec<String> =
            std::iter::once(usage.to_owned()).chain(notes.into_iter().flatten()).collect();
        json::escape_into(&mut out, &sentences.join(" "));
        out.push('}');
        Ok((SearchResult { json: out, missing: missing.named, memory }, total))
    }
}

fn add_entry(out: &mut String, entry: &str, tier: Tier, score: f32) {
    if !out.ends_with('[') {
        out.push(',');
    }
    out.push_str(entry);
    out.push_str(r#","call_with":""#);
    out.push_str(tier.call_with().as_str());
    out.push_str(r#"","score":"#);
    // four decimals; formatting a float that way takes a slow path
    let scaled = (f64::from(score) * 10_000.0).round() as u64;
    out.push_str(&format!("{}.{:04}}}", scaled / 10_000, scaled % 10_000));
}

/// Returns the hint about the parts that a compact answer leaves out; `None` for a full one.
fn compact(detail: Detail) -> Option<String> {
    (detail == Detail::Compact).then(|| {
        "A ? marks optional parameters; for a tool's full description and schema, search for its name with detail full."
            .to_owned()
    })
}

/// Returns the hint about matches left out because of the answer's size; `None` if there are none.
fn cut(left_out: usize) -> Option<String> {
    (left_out > 0).then(|| {
        format!(
            "{left_out} more matches were left out, because their definitions are very large: search for something \
             more specific, or for the tools of one server."
        )
    })
}

/// Returns the servers of tools that nearly matched and have no tool among the hits, the nearest first.
fn near_servers(listed: &[Arc<Tool>], found: &Hits) -> Vec<String> {
    let server = |document: u32| listed.get(document as usize).map(|tool| tool.server.name.as_str());
    let hit: Vec<&str> = found.hits.iter().filter_map(|hit| server(hit.document)).collect();
    let mut names: Vec<String> = Vec::new();
    for name in found.nearly.iter().filter_map(|document| server(*document)) {
        if names.len() < NEAR_NAMED_MAX && !hit.contains(&name) && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Returns the hint about servers whose tools nearly matched; `None` if there are none.
fn nearly(servers: &[String]) -> Option<String> {
    (!servers.is_empty()).then(|| {
        format!(
            "Tools of these servers nearly matched and are not listed: {}; search for a server's name to see its tools.",
            servers.join(", ")
        )
    })
}

/// Returns the hint about a query that was cut; `None` if it was not.
fn shortened(is_cut: bool) -> Option<String> {
    is_cut.then(|| {
        format!(
            "Only the first {QUERY_BYTES_MAX} bytes of the query were searched for: a sentence is enough."
        )
    })
}

impl SearchRequest {
    /// Returns the request as it is searched for: its query has at most [`QUERY_BYTES_MAX`] bytes.
    fn searched(&self) -> SearchRequest {
        let query = self.query.get(..self.query.floor_char_boundary(QUERY_BYTES_MAX)).unwrap_or_default();
        SearchRequest { query: query.to_owned(), server: self.server.clone(), ..*self }
    }

    fn wants(&self, tier: Tier) -> bool {
        (!self.read_only_only || tier == Tier::Read)
            && (!self.exclude_destructive || tier != Tier::Destructive)
    }
}

/// Servers whose tools a search leaves out because they are not connected.
#[derive(Default)]
struct Missing {
    named: Vec<String>,
    more: usize,
}

impl Missing {
    /// Returns the missing servers that this search could have found. Servers that the request filters out are not missing.
    fn of(view: &View, request: &SearchRequest) -> Missing {
        let wanted = |away: &&Away| {
            request.server.as_ref().is_none_or(|name| *name == away.server)
                && away.tiers.iter().any(|tier| request.wants(*tier))
        };
        let mut missing = view.away.iter().filter(wanted);
        let named = missing.by_ref().take(MISSING_NAMED_MAX).map(|away| away.server.clone()).collect();
        Missing { named, more: missing.count() }
    }

    fn sentence(&self) -> Option<String> {
        if self.named.is_empty() {
            return None;
        }
        let named = self.named.join(", ");
        let more = if self.more == 0 { String::new() } else { format!(" and {} more", self.more) };
        Some(format!(
            "This result is incomplete: tools of servers that are not connected now are missing ({named}{more}); \
             search again later."
        ))
    }
}

/// Returns the instructions for calling the tools found (R1 FR-024).
fn usage(mode: IntentMode) -> &'static str {
    match mode {
        IntentMode::Inferred => {
            "Call a tool with the variant named in its call_with: call_tool_read for queries that change nothing, \
             call_tool_write for creating or updating, call_tool_destructive for deleting or anything that cannot be \
             undone. Pass the tool's name as name and its arguments as args (an object) or args_json (a string). The \
             operation type is inferred from the variant; intent_data_sensitivity and intent_reason are optional."
        }
        IntentMode::Required => {
            "Call a tool with the variant named in its call_with: call_tool_read for queries that change nothing, \
             call_tool_write for creating or updating, call_tool_destructive for deleting or anything that cannot be \
             undone. Pass the tool's name as name and its arguments as args (an object) or args_json (a string), and \
             declare intent.operation_type (read, write or destructive): it must match the variant. \
             intent.data_sensitivity and intent.reason are optional."
        }
    }
}
