//! Suite over both clients: what holds for our own client holds for rmcp's over our connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json as value};

use super::super::*;
use super::fake::*;
use super::way::{Way, code};

const WAYS: [&str; 2] = ["raw", "rmcp"];
const ERAS: [Era; 2] = [Era::Modern, Era::Handshake];
/// Result with parts that rmcp's types do not know. It must come through unchanged.
const ODD: &str = r#"{ "resultType":"complete","content":[{"type":"vendor/odd","x":[1.0, 2e3]}],
    "z":{"big":123456789012345678901234567890},"a":"\u00e9","isError":true,"_meta":{"v/x":1} }"#;

async fn upstream(era: Era, answer: impl Fn(&Seen) -> Say + Send + Sync + 'static) -> Fake {
    Fake::declaring(era, EVERYTHING, answer).await
}

async fn open(which: &str, pool: &Pool, target: &Target) -> Result<Way, UpstreamError> {
    if which == "raw" { Ok(Way::raw(pool, target)) } else { Way::rmcp(pool, target).await }
}

/// Runs a case in each era with each client, always on a new upstream.
async fn each<F: Future<Output = ()>>(
    answer: impl Fn(&Seen) -> Say + Clone + Send + Sync + 'static,
    case: impl Fn(Way, Fake, String) -> F,
) {
    for era in ERAS {
        for which in WAYS {
            let fake = upstream(era, answer.clone()).await;
            let way = open(which, &pool(), &Target { era: Some(era), ..fake.target() }).await.unwrap();
            let name = format!("{} {era:?}", way.name());
            case(way, fake, name).await;
        }
    }
}

#[tokio::test]
async fn the_era_is_found_and_credentials_stand_in_headers_only() {
    for era in ERAS {
        let fake = upstream(era, |seen| result(seen, r#"{"resultType":"complete","content":[]}"#)).await;
        for which in WAYS {
            let way = open(which, &pool(), &fake.target()).await.unwrap();
            let answer = way.call("t", r#"{"a":1}"#).await.unwrap();
            assert!(matches!(answer, Answer::Result(_)), "{} {era:?}", way.name());
        }
        let calls: Vec<Seen> = fake.seen().into_iter().filter(|seen| seen.method() == "tools/call").collect();
        assert_eq!(calls.len(), 2, "{era:?}: {:?}", fake.methods());
        for call in &calls {
            let modern = era == Era::Modern;
            let version = if modern { "2026-07-28" } else { "2025-06-18" };
            assert_eq!(call.header("mcp-protocol-version"), version);
            assert_eq!(call.header("mcp-method"), if modern { "tools/call" } else { "" });
            assert_eq!(call.header("mcp-name"), if modern { "t" } else { "" });
            assert_eq!(call.header("mcp-session-id").is_empty(), modern);
            assert_eq!(call.body["params"]["name"], "t");
            assert_eq!(call.body["params"]["arguments"], value!({"a": 1}));
            let capabilities = &call.body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
            assert_eq!(*capabilities, if modern { value!({}) } else { Value::Null });
        }
        for seen in fake.seen() {
            assert_eq!(seen.header("authorization"), "Bearer upstream-secret");
            assert_eq!(seen.header("host"), fake.address.to_string());
            assert_eq!(seen.header("user-agent"), concat!("mcpproxy/", env!("CARGO_PKG_VERSION")));
            assert!(!seen.raw.contains("upstream-secret"), "{}", seen.raw);
            if seen.method() == "initialize" {
                assert_eq!(seen.body["params"]["capabilities"], value!({}));
                assert_eq!(seen.body["params"]["clientInfo"]["name"], "mcpproxy");
                assert_eq!(seen.body["params"]["protocolVersion"], "2025-11-25");
            }
        }
    }
}

#[tokio::test]
async fn pages_are_followed_and_definitions_kept() {
    let odd = r#"{ "name":"N","uri":"x://N","uriTemplate":"x://N/{a}","inputSchema":{"type":"object","vendor":1.0},
        "execution":{"x":2e3},"annotations":{"odd":true},"size":1.50}"#;
    let answer = move |seen: &Seen| {
        let page = match seen.body["params"]["cursor"].as_str() {
            None => format!(r#"{}],"nextCursor":"p 2""#, odd.replace('N', "a")),
            Some("p 2") => format!(r#"{odd}],"nextCursor":"""#),
            Some(_) => format!("{}]", odd.replace('N', "c")),
        };
        let member = match seen.method() {
            "resources/templates/list" => "resourceTemplates",
            other => other.trim_end_matches("/list"),
        };
        result(
            seen,
            &format!(r#"{{"resultType":"complete","ttlMs":0,"cacheScope":"private","{member}":[{page}}}"#),
        )
    };
    each(answer, async |way, fake, name| {
        for kind in [ListKind::Tools, ListKind::Prompts, ListKind::Resources, ListKind::Templates] {
            let entries = way.list(kind).await.unwrap();
            assert_eq!(entries.len(), 3, "{name} {kind:?}: {entries:?}");
            assert_eq!(entries[1], odd, "{name} {kind:?}");
        }
        let hellos = ["server/discover", "initialize"];
        let asked = fake.methods().iter().filter(|method| hellos.contains(&method.as_str())).count();
        assert_eq!(asked, 1, "{name}: {:?}", fake.methods());
    })
    .await;
}

#[tokio::test]
async fn prompts_and_resources_come_back_byte_for_byte() {
    const CONTENTS: &str = r#"{ "resultType":"complete","ttlMs":0,"cacheScope":"private",
        "messages":[{"role":"user","content":{"type":"text","text":"\u00e9"}}],
        "contents":[{"uri":"x://größe?a=1&b","blob":"AAECAw==","vendor":1.0}],"z":2e3 }"#;
    let answer = |seen: &Seen| result(seen, CONTENTS);
    each(answer, async |way, fake, name| {
        for subject in [Subject::Prompt("größe".to_owned()), Subject::Resource("x://größe?a=1&b".to_owned())]
        {
            let answer = way.request(subject).await.unwrap();
            assert_eq!(answer, Answer::Result(CONTENTS.into()), "{name}");
        }
        let seen = fake.seen();
        let sent = |method: &str| seen.iter().find(|seen| seen.method() == method).unwrap();
        let (prompt, resource) = (sent("prompts/get"), sent("resources/read"));
        assert_eq!(prompt.body["params"]["name"], "größe", "{name}");
        assert_eq!(resource.body["params"]["uri"], "x://größe?a=1&b", "{name}");
        let is_modern = prompt.header("mcp-protocol-version") == "2026-07-28";
        let mirrored = if is_modern {
            ["=?base64?Z3LDtsOfZQ==?=", "=?base64?eDovL2dyw7bDn2U/YT0xJmI=?="]
        } else {
            ["", ""]
        };
        assert_eq!([prompt, resource].map(|seen| seen.header("mcp-name")), mirrored, "{name}");
    })
    .await;
}

#[tokio::test]
async fn results_come_through_byte_for_byte_in_either_form() {
    let answer = |seen: &Seen| match seen.body["params"]["name"].as_str() {
        Some("json") => result(seen, ODD),
        _ => {
            let note =
                |method: &str| event(&format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{}}}}"#));
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{ODD}}}"#, seen.body["id"]);
            let lines: String = answer.lines().map(|line| format!("data: {line}\n")).collect();
            let events = format!(": hello\n\n{}{lines}\n", note("notifications/message"));
            Say::Raw([stream(&events), b"0\r\n\r\n".to_vec()].concat())
        }
    };
    each(answer, async |way, _fake, name| {
        for form in ["json", "events"] {
            let answer = way.call(form, "{}").await.unwrap();
            assert_eq!(answer, Answer::Result(ODD.into()), "{name} {form}");
        }
    })
    .await;
}

#[tokio::test]
async fn progress_before_the_answer_is_no_obstacle() {
    let answer = |seen: &Seen| {
        let token = &seen.body["params"]["_meta"]["progressToken"];
        let progress = value!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 1}});
        let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
        let answer =
            format!(r#"{{"jsonrpc":"2.0","id":{},"result":{ODD}}}"#, seen.body["id"]).replace('\n', " ");
        let events = [&progress.to_string(), ping, &answer].map(event).concat();
        match seen.method() {
            "tools/call" => Say::Raw([stream(&events), b"0\r\n\r\n".to_vec()].concat()),
            _ => Say::Http(202, vec![], String::new()),
        }
    };
    each(answer, async |way, _fake, name| {
        let answer = way.call("t", "{}").await.unwrap();
        assert_eq!(answer, Answer::Result(ODD.replace('\n', " ").into()), "{name}");
    })
    .await;
}

#[tokio::test]
async fn errors_of_the_upstream_come_through() {
    let answer = |seen: &Seen| match seen.body["params"]["name"].as_str() {
        Some("status") => error(400, &seen.body["id"], -32020),
        _ => error(200, &seen.body["id"], -32602),
    };
    each(answer, async |way, _fake, name| {
        assert_eq!(code(&way.call("status", "{}").await.unwrap()), -32020, "{name}");
        assert_eq!(code(&way.call("t", "{}").await.unwrap()), -32602, "{name}");
    })
    .await;
}

#[tokio::test]
async fn an_ended_session_is_opened_again_once() {
    let answer = |seen: &Seen| match seen.header("mcp-session-id") {
        "s0" => error(404, &Value::Null, -32001),
        _ => result(seen, ODD),
    };
    for which in WAYS {
        let fake = Fake::handshake(answer).await;
        let target = Target { era: Some(Era::Handshake), ..fake.target() };
        let way = open(which, &pool(), &target).await.unwrap();
        assert_eq!(way.call("t", "{}").await.unwrap(), Answer::Result(ODD.into()), "{which}");
        let sessions: Vec<String> = fake
            .seen()
            .iter()
            .filter(|seen| seen.method() == "tools/call")
            .map(|seen| seen.header("mcp-session-id").to_owned())
            .collect();
        assert_eq!(sessions, ["s0", "s1"], "{which}");
    }
}

#[tokio::test]
async fn nothing_is_followed_elsewhere() {
    let elsewhere = Arc::new(Fake::start(|_| panic!("nothing may arrive")).await);
    let location = format!("http://{}/mcp?k=v", elsewhere.address);
    for status in [301, 302, 303, 307, 308] {
        let location = location.clone();
        let answer =
            move |_: &Seen| Say::Http(status, vec![("location", location.clone())], "secret".to_owned());
        each(answer, async |way, _fake, name| {
            let failed = way.call("t", "{}").await.unwrap_err();
            assert_eq!(failed.kind, FailureKind::Invalid, "{name}");
            assert!(!format!("{failed:?}").contains("secret"), "{name}: {failed:?}");
        })
        .await;
    }
    assert_eq!(elsewhere.accepted(), 0);
}

#[tokio::test]
async fn too_much_is_cut_off() {
    let answer = |seen: &Seen| {
        let large = "x".repeat(limits().response_bytes_max * 2);
        match seen.body["params"]["name"].as_str() {
            Some("json") => json(large),
            Some("event") => Say::Raw(stream(&format!("data: {large}"))),
            _ => status(500, "secret"),
        }
    };
    each(answer, async |way, _fake, name| {
        for form in ["json", "event"] {
            let failed = way.call(form, "{}").await.unwrap_err();
            assert_eq!(failed.kind, FailureKind::TooLarge, "{name} {form}: {failed:?}");
        }
        let failed = way.call("status", "{}").await.unwrap_err();
        assert_eq!(failed.kind, FailureKind::Invalid, "{name}");
        assert!(!format!("{failed:?}").contains("secret"), "{name}: {failed:?}");
    })
    .await;
}

/// Resolver whose names lead elsewhere after this many look-ups.
struct Turning(AtomicUsize);

impl Resolve for Turning {
    fn resolve<'a>(&'a self, _: &'a str) -> Resolving<'a> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let address: IpAddr = if left.is_ok() { [127, 0, 0, 1].into() } else { [127, 0, 0, 2].into() };
        Box::pin(async move { Ok(vec![address]) })
    }
}

#[tokio::test]
async fn every_connection_is_guarded_after_dns() {
    for era in ERAS {
        let fake = upstream(era, |_| Say::Last(vec![])).await;
        let allow = vec!["127.0.0.1/32".parse().unwrap()];
        for (which, good) in WAYS.into_iter().flat_map(|way| [(way, 0), (way, 1)]) {
            let dns = Arc::new(Turning(AtomicUsize::new(good)));
            let pool = Pool::new(Arc::new(Egress::with_dns(allow.clone(), vec![], dns)), None);
            let url = format!("http://rebind.example:{}/mcp?k=v", fake.address.port());
            let target = Target { era: Some(era), ..fake.target().at(url) };
            let failed = match open(which, &pool, &target).await {
                // the call ends its connection; the next one needs a new address
                Ok(way) => {
                    drop(way.call("t", "{}").await);
                    way.call("t", "{}").await.unwrap_err()
                }
                Err(error) => error,
            };
            assert_eq!(failed.kind, FailureKind::EgressRefused, "{which} {good} {era:?}: {failed:?}");
        }
    }
}
