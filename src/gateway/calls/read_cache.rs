//! `read_cache`: pages of the text cut off a long result, for the caller that got it (behaviour, section 5, large results).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::timeout;
use ulid::Ulid;

use super::Calls;
use super::response_cache::hash_of;
use crate::domain::activity::{Record, RecordKind, Status};
use crate::domain::json::escape_into;
use crate::domain::page::{self, Content, LEVELS_MAX, LargeRecord, Page, PageRequest};
use crate::domain::refusal::{Class, Code, Refusal};
use crate::domain::seal::{self, Place};
use crate::gateway::credentials::open_data_key;
use crate::gateway::log::{Attempt, record_unavailable};
use crate::gateway::outlive::Outlive;
use crate::gateway::tenants::Shed;
use crate::gateway::{RecordUnavailable, clock};
use crate::store::CachedText;

/// Deadline of reading one page.
const READ_MAX: Duration = Duration::from_secs(10);
/// Characters per page for callers whose results are not cut any more.
const UNLIMITED_PAGE_CHARACTERS: usize = 20_000;
/// Characters of a cache key that the record shows.
const KEY_SHOWN_CHARS: usize = 6;
/// Most digits of a record index in a key.
const INDEX_DIGITS_MAX: usize = 9;

/// Request for a page.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// Cache key from the note at the end of a cut text; `KEY.n` is record `n` within it.
    pub key: String,
    /// Number of records or characters before the page.
    pub offset: usize,
    /// Most records or characters on the page; `None` for as many as fit.
    pub limit: Option<usize>,
}

/// A page of cached text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadResult {
    /// `{records|text, total, offset, limit, next_offset, meta}`
    pub json: String,
    /// Page for clients that read text; `None` for records, which are JSON only.
    pub text: Option<TextPage>,
}

/// A page of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPage {
    /// The characters, as the body of a JSON string.
    pub body: String,
    /// Position of the page in the whole text, and how to read on.
    pub note: String,
}

impl Calls {
    /// Reads a page. The refusal is the same for a key that is malformed, unknown, expired, or another caller's. The record
    /// is closed whether or not the caller waits.
    pub fn read_cache(
        self: &Arc<Self>,
        attempt: Attempt,
        request: ReadRequest,
    ) -> Outlive<Result<ReadResult, Refusal>> {
        let calls = Arc::clone(self);
        Outlive::new(&self.life.tasks, async move { calls.run_read(&attempt, &request).await })
    }

    async fn run_read(&self, attempt: &Attempt, request: &ReadRequest) -> Result<ReadResult, Refusal> {
        if let Err(refusal) = self.tenants.limits.admit(&attempt.caller, Instant::now()) {
            self.tenants.limits.count_shed(&attempt.caller, Shed::Read, attempt.started_at);
            return Err(refusal);
        }
        let begun = self.log.activity.begin(attempt.record(RecordKind::CacheRead));
        let mut pending = begun.map_err(|RecordUnavailable| record_unavailable())?;
        note_request(&mut pending.record, request);
        let read = timeout(READ_MAX, self.page(attempt, request, &mut pending.record));
        let outcome = read.await.unwrap_or_else(|_| Err(unavailable()));
        let record = &mut pending.record;
        match &outcome {
            Ok(result) => {
                record.status = Status::Success;
                record.response_bytes = i64::try_from(result.json.len()).ok();
            }
            Err(refusal) => {
                let is_ours = refusal.code.class() == Class::Limit;
                record.status = if is_ours { Status::Rejected } else { Status::Blocked };
                record.error_code = Some(refusal.code.as_str().to_owned());
                record.error_message = Some(refusal.message.clone());
            }
        }
        record.duration_ms = Some(clock::milliseconds(attempt.started.elapsed()));
        pending.close();
        outcome
    }

    async fn page(
        &self,
        attempt: &Attempt,
        request: &ReadRequest,
        record: &mut Record,
    ) -> Result<ReadResult, Refusal> {
        let (caller, key_text) = (&attempt.caller, request.key.as_str());
        let tenant = caller.tenant_id();
        let (token, within) = parse(&request.key).ok_or_else(not_found)?;
        let _turn = self.cache_lane.enter(tenant).await.ok_or_else(busy)?;
        let hash = hash_of(&token);
        let found = self.store.cached_text(tenant, caller.key, &hash).await.map_err(|error| {
            tracing::warn!(%error, %tenant, "what was cut off a result could not be read");
            unavailable()
        })?;
        let CachedText { data_key, sealed, call, server, tool, keys } = found.ok_or_else(not_found)?;
        record.parent_id = Some(Ulid::from(call));
        record.server.clone_from(&server);
        record.tool.clone_from(&tool);
        let key = open_data_key(&self.options.keyring, tenant, &keys, data_key).ok_or_else(not_found)?;
        let principal = caller.key.map(|key| key.0).unwrap_or_default();
        let characters_max = match caller.settings.response_limit as usize {
            0 => UNLIMITED_PAGE_CHARACTERS,
            limit => limit,
        };
        let (offset, limit) = (request.offset, request.limit);
        let request = PageRequest { within, offset, limit, characters_max };
        let page = self.upstreams.aside(tenant.0, sealed.len(), || {
            let place = Place::CachedText { tenant, principal, hash: &hash };
            let body = seal::open(&key.derive(token.as_bytes()), place, &sealed).ok()?;
            page::read(std::str::from_utf8(&body).ok()?, &request)
        });
        let page = page.await.ok_or_else(not_found)?;
        let unit = if matches!(page.content, Content::Text(_)) { "characters" } else { "records" };
        record.response = Some(format!("{unit} from {offset} of {}", page.total));
        let meta = json!({
            "unit": unit, "server": server, "tool": tool, "total_characters": page.total_characters,
        });
        Ok(render(page, key_text, &meta))
    }
}

/// Splits a key into its token and the record indexes within it. Returns `None` if it is malformed.
fn parse(key: &str) -> Option<(String, Vec<usize>)> {
    let mut parts = key.split('.');
    let token = parts.next().filter(|token| token.len() <= 100)?.to_owned();
    let index = |part: &str| {
        let is_number = part.len() <= INDEX_DIGITS_MAX && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| is_number)
    };
    let within: Option<Vec<usize>> = parts.take(LEVELS_MAX + 1).map(index).collect();
    within.filter(|within| within.len() <= LEVELS_MAX).map(|within| (token, within))
}

/// Notes the requested page, with only the first characters of its key.
fn note_request(record: &mut Record, request: &ReadRequest) {
    let shown: String = request.key.chars().take(KEY_SHOWN_CHARS).collect();
    let arguments =
        json!({"key": format!("{shown}…"), "offset": request.offset, "limit": request.limit}).to_string();
    record.request_bytes = i64::try_from(arguments.len()).ok();
    record.arguments = Some(arguments);
}

fn not_found() -> Refusal {
    Refusal::new(
        Code::NotFound,
        "There is nothing to read under this key: it is wrong, expired or not this caller's; what was cut off a \
         result is kept for 2 hours at most",
    )
}

fn busy() -> Refusal {
    Refusal::new(Code::Overloaded, "Too many cached results are being read; try again in a few seconds")
}

fn unavailable() -> Refusal {
    Refusal::new(Code::CacheUnavailable, "Cached results cannot be read now; try again in a few seconds")
}

fn render(page: Page, key: &str, meta: &Value) -> ReadResult {
    let Page { content, total, offset, limit, next_offset, .. } = page;
    let next = next_offset.map_or("null".to_owned(), |next| next.to_string());
    let numbers = format!(r#""total":{total},"offset":{offset},"limit":{limit},"next_offset":{next}"#);
    match content {
        Content::Text(body) => {
            let end = next_offset.unwrap_or(total.max(offset));
            let on = next_offset.map_or("This is the end".to_owned(), |next| {
                format!(r#"Read on with read_cache {{"key": "{key}", "offset": {next}, "limit": {limit}}}"#)
            });
            let note = format!("[mcpproxy: characters {offset} to {end} of {total}. {on}]");
            let json = format!(r#"{{"text":"{body}",{numbers},"meta":{meta}}}"#);
            ReadResult { json, text: Some(TextPage { body, note }) }
        }
        Content::Records { joined, path, around, large } => {
            let mut meta = meta.to_string();
            meta.truncate(meta.len() - 1);
            meta.push_str(r#","path":"#);
            escape_into(&mut meta, &path);
            if let Some(around) = around {
                meta.push_str(r#","around":"#);
                meta.push_str(&around);
            }
            meta.push('}');
            let large = large.map(|large| large_record(&large, key)).unwrap_or_default();
            let json = format!(r#"{{"records":[{joined}],{numbers}{large},"meta":{meta}}}"#);
            ReadResult { json, text: None }
        }
    }
}

/// Returns the member that replaces a record too large for a page.
fn large_record(large: &LargeRecord, key: &str) -> String {
    let LargeRecord { index, characters, start } = large;
    format!(
        r#","large_record":{{"index":{index},"key":"{key}.{index}","characters":{characters},"start":"{start}","hint":"this record is larger than a page: read it by its own key"}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_a_text_or_a_record_in_it() {
        assert_eq!(parse("ab"), Some(("ab".to_owned(), vec![])));
        assert_eq!(parse("ab.0.17"), Some(("ab".to_owned(), vec![0, 17])));
        for bad in ["ab.", "ab.-1", "ab.+1", "ab.x", "ab.1234567890", "a.1.1.1.1.1.1.1.1.1"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn pages_are_json() {
        let page = |content| Page {
            content,
            total: 9,
            offset: 2,
            limit: 3,
            next_offset: Some(5),
            total_characters: 77,
        };
        let meta = json!({"unit": "x"});
        let text = render(page(Content::Text(r"a\n\ud800".to_owned())), "k", &meta);
        let expected =
            r#"{"text":"a\n\ud800","total":9,"offset":2,"limit":3,"next_offset":5,"meta":{"unit":"x"}}"#;
        assert_eq!(text.json, expected);
        let note = r#"[mcpproxy: characters 2 to 5 of 9. Read on with read_cache {"key": "k", "offset": 5, "limit": 3}]"#;
        assert_eq!(text.text.unwrap().note, note);
        let content = Content::Records {
            joined: "1.50,{}".to_owned(),
            path: "/a\"b".to_owned(),
            around: Some("{ }".to_owned()),
            large: Some(LargeRecord { index: 4, characters: 900, start: r"\n".to_owned() }),
        };
        let read = render(page(content), "k", &meta);
        assert_eq!(read.text, None);
        let value: Value = serde_json::from_str(&read.json).unwrap();
        assert_eq!(value["meta"], json!({"unit": "x", "path": "/a\"b", "around": {}}));
        assert_eq!(
            (&value["large_record"]["key"], &value["large_record"]["start"]),
            (&json!("k.4"), &json!("\n"))
        );
        assert!(read.json.contains("[1.50,{}]"));
    }
}
