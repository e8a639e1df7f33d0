//! Lists besides tools: asked for where they are declared, and no harm to the tools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::Notify;

use super::super::*;
use super::fake::*;

const ERAS: [Era; 2] = [Era::Modern, Era::Handshake];
const OTHERS: [&str; 3] = ["prompts/list", "resources/list", "resources/templates/list"];
/// Page that fits any list.
const PAGE: &str = r#"{"tools":[{"name":"t"}],"prompts":[{"name":"p"}],"resources":[{"uri":"x://r"}],
    "resourceTemplates":[{"uriTemplate":"x://{t}"}]}"#;

fn connection(fake: &Fake, era: Era, limits: Limits) -> Arc<Connection> {
    pool().connection(&Target { era: Some(era), limits, ..fake.target() })
}

fn names(listing: &Listing) -> Vec<&str> {
    listing.entries.iter().map(|entry| entry.name.as_str()).collect()
}

#[derive(Debug)]
struct Listings {
    tools: Listing,
    others: Vec<Listed>,
}

async fn list_all(connection: &Connection) -> Result<Listings, UpstreamError> {
    let tools = connection.list(ListKind::Tools).await?;
    let sure = Doubt { kinds: Vec::new(), since: tokio::time::Instant::now() };
    Ok(Listings { tools, others: connection.list_others(&ListKind::OTHERS, &sure).await })
}

fn rest(listings: &Listings) -> [&Result<Listing, UpstreamError>; 3] {
    [0, 1, 2].map(|number| &listings.others[number].1)
}

fn count(fake: &Fake, method: &str) -> usize {
    fake.methods().iter().filter(|seen| *seen == method).count()
}

#[tokio::test]
async fn everything_declared_is_listed() {
    for era in ERAS {
        let fake = Fake::declaring(era, EVERYTHING, |seen| result(seen, PAGE)).await;
        let listings = list_all(&connection(&fake, era, limits())).await.unwrap();
        assert_eq!(names(&listings.tools), ["t"], "{era:?}");
        let others = rest(&listings).map(|listing| names(listing.as_ref().unwrap())[0].to_owned());
        assert_eq!(others, ["p", "x://r", "x://{t}"], "{era:?}");
        for method in OTHERS {
            assert_eq!(count(&fake, method), 1, "{era:?} {method}");
        }
    }
}

#[tokio::test]
async fn what_is_not_declared_is_not_asked_for() {
    for era in ERAS {
        for (capabilities, asked) in [
            ("{}", &[][..]),
            (r#"{"tools":{},"prompts":{}}"#, &OTHERS[..1]),
            (r#"{"resources":{}}"#, &OTHERS[1..]),
        ] {
            let fake = Fake::declaring(era, capabilities, |seen| result(seen, PAGE)).await;
            let listings = list_all(&connection(&fake, era, limits())).await.unwrap();
            assert_eq!(names(&listings.tools), ["t"], "{era:?} {capabilities}");
            for (listing, method) in rest(&listings).into_iter().zip(OTHERS) {
                let is_asked = asked.contains(&method);
                let found = listing.as_ref().unwrap().entries.len();
                assert_eq!(
                    (found, count(&fake, method)),
                    (is_asked.into(), is_asked.into()),
                    "{era:?} {method}"
                );
            }
        }
    }
}

#[tokio::test]
async fn resources_need_no_templates() {
    for era in ERAS {
        for (refused, code, is_fine) in [
            ("resources/templates/list", -32601, true),
            ("resources/templates/list", -32603, false),
            ("resources/list", -32601, false),
        ] {
            let fake = Fake::declaring(era, EVERYTHING, move |seen| match seen.method() {
                method if method == refused && era == Era::Modern => error(404, &seen.body["id"], code),
                method if method == refused => error(200, &seen.body["id"], code),
                _ => result(seen, PAGE),
            })
            .await;
            let listings = list_all(&connection(&fake, era, limits())).await.unwrap();
            let all_fine = rest(&listings).iter().all(|listing| listing.is_ok());
            assert_eq!(all_fine, is_fine, "{era:?} {refused} {code}");
            assert_eq!(
                rest(&listings)[2].as_ref().map_or(0, |listing| listing.entries.len()),
                usize::from(!is_fine && refused == "resources/list")
            );
        }
    }
}

#[tokio::test]
async fn only_who_declares_something_else_may_have_no_tools() {
    let (all, no_tools) = (EVERYTHING, r#"{"prompts":{}}"#);
    let table =
        [(no_tools, -32601, true), (no_tools, -32603, false), (all, -32601, false), ("{}", -32601, false)];
    for era in ERAS {
        for (capabilities, code, is_fine) in table {
            let fake = Fake::declaring(era, capabilities, move |seen| match seen.method() {
                "tools/list" if era == Era::Modern => error(404, &seen.body["id"], code),
                "tools/list" => error(200, &seen.body["id"], code),
                _ => result(seen, PAGE),
            })
            .await;
            let listed = list_all(&connection(&fake, era, limits())).await;
            let name = format!("{era:?} {capabilities} {code}");
            match listed {
                Ok(listings) => {
                    assert!(is_fine && listings.tools.entries.is_empty(), "{name}");
                    assert_eq!(names(rest(&listings)[0].as_ref().unwrap()), ["p"], "{name}");
                }
                Err(error) => assert!(!is_fine && error.kind == FailureKind::Invalid, "{name}: {error:?}"),
            }
        }
    }
    // an error in the middle of a list is not its end
    let fake =
        Fake::declaring(Era::Handshake, no_tools, |seen| match seen.body["params"]["cursor"].as_str() {
            None => result(seen, r#"{"tools":[{"name":"a"}],"nextCursor":"n"}"#),
            Some(_) => error(200, &seen.body["id"], -32601),
        })
        .await;
    assert_eq!(fake.connection().list(ListKind::Tools).await.unwrap_err().kind, FailureKind::Invalid);
}

#[tokio::test]
async fn lists_that_fail_take_no_tools_away() {
    for era in ERAS {
        let fake = Fake::declaring(era, EVERYTHING, |seen| match seen.method() {
            "tools/list" | "resources/templates/list" => result(seen, PAGE),
            "prompts/list" => error(200, &seen.body["id"], -32603),
            _ => result(seen, "{}"),
        })
        .await;
        let listings = list_all(&connection(&fake, era, limits())).await.unwrap();
        assert_eq!(names(&listings.tools), ["t"], "{era:?}");
        let details = rest(&listings).map(|listing| match listing {
            Ok(listing) => format!("{:?}", names(listing)),
            Err(error) => error.detail.to_string(),
        });
        let want = [
            "prompts/list was refused with code -32603",
            "resources/list was answered without a list of resources",
            r#"["x://{t}"]"#,
        ];
        assert_eq!(details, want, "{era:?}");
    }
}

#[tokio::test]
async fn a_server_that_says_the_same_to_everything_has_nothing() {
    let fake = Fake::start(|seen| result(seen, "{}")).await;
    for era in [None, Some(Era::Modern), Some(Era::Handshake)] {
        let connection = pool().connection(&Target { era, ..fake.target() });
        assert_eq!(list_all(&connection).await.unwrap_err().kind, FailureKind::Invalid, "{era:?}");
        for kind in [ListKind::Prompts, ListKind::Resources, ListKind::Templates] {
            assert_eq!(
                connection.list(kind).await.unwrap_err().kind,
                FailureKind::Invalid,
                "{era:?} {kind:?}"
            );
        }
        assert_eq!(connection.offers().await.unwrap_err().kind, FailureKind::Invalid, "{era:?}");
    }
}

#[tokio::test]
async fn silence_on_a_list_is_bounded_and_costs_no_other() {
    for era in ERAS {
        for silent in [1, OTHERS.len()] {
            let never = Arc::new(Notify::new());
            let fake = Fake::declaring(era, EVERYTHING, move |seen| match seen.method() {
                method if OTHERS[..silent].contains(&method) => {
                    Say::After(Arc::clone(&never), Box::new(Say::Last(vec![])))
                }
                _ => result(seen, PAGE),
            })
            .await;
            let breaker = BreakerRules { failures_max: 1, ..limits().breaker };
            let limits = Limits { listing_timeout: Duration::from_millis(600), breaker, ..limits() };
            let connection = connection(&fake, era, limits);
            let began = Instant::now();
            let listings = list_all(&connection).await.unwrap();
            assert!(began.elapsed() < Duration::from_secs(3), "{era:?}: {:?}", began.elapsed());
            assert_eq!(names(&listings.tools), ["t"], "{era:?}");
            for (number, listing) in rest(&listings).into_iter().enumerate() {
                let kind = listing.as_ref().err().map(|error| error.kind);
                assert_eq!(
                    kind,
                    (number < silent).then_some(FailureKind::Timeout),
                    "{era:?} {number} of {silent}"
                );
            }
            // and it says nothing about calls, which one failure would end
            connection.ask(call("t")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn lists_without_end_are_cut_off() {
    let page = AtomicUsize::new(0);
    let endless = Fake::declaring(Era::Modern, EVERYTHING, move |seen| {
        let next = page.fetch_add(1, Ordering::SeqCst);
        result(seen, &format!(r#"{{"resources":[],"nextCursor":"{next}"}}"#))
    })
    .await;
    let failed = connection(&endless, Era::Modern, limits()).list(ListKind::Resources).await.unwrap_err();
    assert_eq!((failed.kind, failed.detail.as_ref()), (FailureKind::TooLarge, "too many pages"));
    assert_eq!(count(&endless, "resources/list"), PAGES_MAX);

    // what is too large is not read to its end
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let large =
        Fake::declaring(Era::Modern, EVERYTHING, move |seen| match seen.body["params"]["cursor"].as_str() {
            None => result(seen, r#"{"prompts":[],"resourceTemplates":[],"resources":[],"nextCursor":"n"}"#),
            Some(_) => {
                let length = OFFERS_BYTES_MAX;
                Say::Raw(format!("{head}content-length: {length}\r\n\r\n{{").into_bytes())
            }
        })
        .await;
    for kind in [ListKind::Prompts, ListKind::Resources, ListKind::Templates] {
        let failed = connection(&large, Era::Modern, limits()).list(kind).await.unwrap_err();
        assert_eq!(failed.kind, FailureKind::TooLarge, "{kind:?}");
    }
}

#[tokio::test]
async fn what_is_declared_is_asked_for_once_and_again_when_it_is_old() {
    for era in ERAS {
        let hello = if era == Era::Modern { "server/discover" } else { "initialize" };
        let fake = Fake::declaring(era, EVERYTHING, |seen| result(seen, PAGE)).await;
        let connection = connection(&fake, era, limits());
        assert_eq!(connection.announces(Announced::Prompts), None, "{era:?}");
        for _ in 0..2 {
            assert!(connection.offers().await.unwrap().completions, "{era:?}");
            list_all(&connection).await.unwrap();
        }
        assert_eq!(connection.announces(Announced::Prompts), Some(true), "{era:?}");
        assert_eq!(count(&fake, hello), 1, "{era:?}");
        connection.let_offers_grow_old();
        list_all(&connection).await.unwrap();
        connection.offers().await.unwrap();
        // a session with an id ends with the server that declared it
        assert_eq!(count(&fake, hello), if era == Era::Modern { 2 } else { 1 }, "{era:?}");
    }
}

#[tokio::test]
async fn a_server_without_sessions_is_asked_anew() {
    let calls = AtomicUsize::new(0);
    let fake = Fake::start(move |seen| match seen.method() {
        "server/discover" => error(400, &Value::Null, -32000),
        "initialize" if calls.fetch_add(1, Ordering::SeqCst) == 0 => result(seen, &hello("{}")),
        "initialize" => result(seen, &hello(EVERYTHING)),
        "notifications/initialized" => Say::Http(202, vec![], String::new()),
        _ => result(seen, PAGE),
    })
    .await;
    let connection = fake.connection();
    assert!(connection.list(ListKind::Prompts).await.unwrap().entries.is_empty());
    connection.let_offers_grow_old();
    assert_eq!(names(&connection.list(ListKind::Prompts).await.unwrap()), ["p"]);
    assert_eq!(count(&fake, "initialize"), 2);
}

/// In doubt, only a recent declaration may say that a server has none of a kind.
#[tokio::test]
async fn what_was_not_declared_earlier_is_asked_for_where_there_is_doubt() {
    for (era, has_id) in [(Era::Modern, false), (Era::Handshake, false), (Era::Handshake, true)] {
        let (fake, asked) = changing(era, has_id).await;
        let connection = connection(&fake, era, limits());
        assert!(!connection.offers().await.unwrap().has(ListKind::Prompts), "{era:?} {has_id}");
        let doubt = |kinds: &[ListKind]| Doubt { kinds: kinds.to_vec(), since: tokio::time::Instant::now() };
        let prompts = async |doubt: &Doubt| {
            let listed = connection.list_others(&[ListKind::Prompts], doubt).await;
            listed[0].1.as_ref().unwrap().entries.len()
        };
        let before = asked.load(Ordering::SeqCst);
        connection.list(ListKind::Tools).await.unwrap();
        let sure = doubt(&[ListKind::Resources]);
        assert_eq!((prompts(&sure).await, asked.load(Ordering::SeqCst)), (0, before), "{era:?} {has_id}");
        assert!(connection.has_tools_alone(&doubt(&[])), "{era:?} {has_id}");
        let doubted = doubt(&ListKind::OTHERS);
        // a session with an id that goes on is the same server's
        assert_eq!(connection.has_tools_alone(&doubted), has_id, "{era:?}");
        assert_eq!(prompts(&doubted).await, usize::from(!has_id), "{era:?} {has_id}");
        let once = fake.methods().len();
        assert_eq!(prompts(&doubted).await, usize::from(!has_id), "{era:?} {has_id}");
        // the declaration is known by now: only the list itself is asked for
        assert_eq!(fake.methods().len() - once, usize::from(!has_id), "{era:?} {has_id}");
    }
}

/// Starts a server that declares only tools at first and prompts later. Returns it with the count of declarations.
async fn changing(era: Era, has_id: bool) -> (Fake, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let declares = move || match count.fetch_add(1, Ordering::SeqCst) {
        0 => r#"{"tools":{}}"#,
        _ => r#"{"tools":{},"prompts":{}}"#,
    };
    let fake = Fake::start(move |seen| match (seen.method(), era) {
        ("server/discover", Era::Modern) => {
            let more = r#""resultType":"complete","ttlMs":0,"cacheScope":"private""#;
            let versions = r#""supportedVersions":["2026-07-28"]"#;
            result(seen, &format!(r#"{{{versions},"capabilities":{},{more}}}"#, declares()))
        }
        ("initialize", Era::Handshake) => {
            let Say::Http(code, mut headers, body) = result(seen, &hello(declares())) else { unreachable!() };
            headers.extend(has_id.then(|| ("mcp-session-id", "s".to_owned())));
            Say::Http(code, headers, body)
        }
        ("notifications/initialized", _) => Say::Http(202, vec![], String::new()),
        _ => result(seen, PAGE),
    })
    .await;
    (fake, asked)
}

#[tokio::test]
async fn whoever_is_asked_in_the_wrong_era_says_so_in_the_right_one() {
    let fake = Fake::declaring(Era::Handshake, EVERYTHING, |seen| result(seen, PAGE)).await;
    let connection = connection(&fake, Era::Modern, limits());
    assert!(connection.offers().await.unwrap().has(ListKind::Templates));
    assert_eq!(connection.era(), Some(Era::Handshake));
}

/// Program that declares prompts and completions, and has the same answer to everything else.
const PROGRAM: &str = r#"while read -r line; do
    id=${line#*'"id":'} id=${id%%,*}
    case $line in
        *'"notifications/'*) continue ;;
        *'"initialize"'*) declared='{"tools":{},"prompts":{"listChanged":true},"completions":{}}'
            result='{"protocolVersion":"2025-06-18","capabilities":'$declared'}' ;;
        *) result='{"tools":[],"prompts":[{"name":"p"}],"resources":[{"uri":"x://r"}]}' ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done"#;

#[tokio::test]
async fn a_program_is_listed_as_it_declares_and_asked_like_a_server() {
    let http = Fake::start(|_| panic!("nothing may arrive")).await;
    let argv = ["/bin/sh", "-c", PROGRAM].map(str::to_owned).to_vec();
    let command = Ok(Arc::new(ProgramCommand::new(argv, BTreeMap::new(), vec!["*".to_owned()])));
    let upstream = Upstream::Program(Program { name: "p".to_owned(), command, generation: 0 });
    let pool = pool();
    let connection = pool.connection(&Target { upstream, ..http.target() });
    let listings = list_all(&connection).await.unwrap();
    let found = rest(&listings).map(|listing| listing.as_ref().unwrap().entries.len());
    assert_eq!((listings.tools.entries.len(), found), (0, [1, 0, 0]));
    assert_eq!(connection.announces(Announced::Prompts), Some(true));
    assert!(connection.offers().await.unwrap().completions);
    let answer = connection.ask(request(Subject::Prompt("p".to_owned()))).await.unwrap();
    assert!(matches!(answer, Answer::Result(_)));
    pool.close().await;
}

/// An earlier declaration may be another server's: then nothing is known, and the session that serves calls goes on.
#[tokio::test]
async fn who_does_not_say_anew_what_it_has_is_not_believed_to_have_nothing() {
    for (era, answer) in
        [(Era::Modern, 503), (Era::Modern, 200), (Era::Handshake, 503), (Era::Handshake, 200)]
    {
        let asked = AtomicUsize::new(0);
        let first = if era == Era::Modern { "server/discover" } else { "initialize" };
        let fake = Fake::start(move |seen| match seen.method() {
            method if method == first && asked.fetch_add(1, Ordering::SeqCst) > 0 => {
                error(answer, &seen.body["id"], -32603)
            }
            "server/discover" if era == Era::Modern => {
                let more = r#""resultType":"complete","ttlMs":0,"cacheScope":"private""#;
                let versions = r#""supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}"#;
                result(seen, &format!("{{{versions},{more}}}"))
            }
            "initialize" => result(seen, &hello(r#"{"tools":{}}"#)),
            "notifications/initialized" => Say::Http(202, vec![], String::new()),
            "server/discover" => error(400, &Value::Null, -32000),
            _ => result(seen, PAGE),
        })
        .await;
        let connection = connection(&fake, era, limits());
        assert!(!connection.offers().await.unwrap().has(ListKind::Prompts), "{era:?}");
        let doubt = Doubt { kinds: ListKind::OTHERS.to_vec(), since: tokio::time::Instant::now() };
        let listed = connection.list_others(&[ListKind::Prompts], &doubt).await;
        assert!(listed[0].1.is_err(), "{era:?} {answer}");
        connection.ask(call("t")).await.unwrap();
    }
}

#[tokio::test]
async fn who_declares_what_it_has_not_is_not_asked_about_it_each_time() {
    for era in [Era::Modern, Era::Handshake] {
        let fake = Fake::declaring(era, EVERYTHING, |seen| match seen.method() {
            "prompts/list" | "resources/list" => error(200, &seen.body["id"], -32601),
            _ => result(seen, PAGE),
        })
        .await;
        let connection = connection(&fake, era, limits());
        connection.list(ListKind::Tools).await.unwrap();
        connection.offers().await.unwrap();
        let sure = Doubt { kinds: Vec::new(), since: tokio::time::Instant::now() };
        let before = fake.methods().len();
        for _ in 0..3 {
            for (kind, listed) in
                connection.list_others(&[ListKind::Prompts, ListKind::Resources], &sure).await
            {
                let said = listed.unwrap_err().to_string();
                assert!(said.contains("-32601"), "{era:?} {kind:?}: {said}");
            }
        }
        assert_eq!(fake.methods().len() - before, 6, "{era:?}: {:?}", fake.methods());
    }
}
