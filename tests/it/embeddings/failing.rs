//! A service that is away, slow or hostile costs a search its help and a bounded wait, nothing else.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{SOON, helped, names, search, stage, stage_with};
use crate::support::{Embedder, Mood, Stage, Tool, Upstream, eventually, settle};

/// How long a search waits for the service.
const WAIT: Duration = Duration::from_millis(300);
/// A search that does not wait longer than it should, on a busy machine.
const PROMPT: Duration = Duration::from_millis(1500);
/// What is certain of the first rest, and of those after it.
const RESTS: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

#[tokio::test]
async fn a_search_waits_shortly_and_then_not_at_all() {
    let wait_ms = WAIT.as_millis().to_string();
    let (embedder, stage, tenant, _upstream) =
        stage_with(&[("MCPPROXY__SEARCH__EMBEDDINGS_WAIT_MS", &wait_ms)]).await;
    let agent = tenant.agent().await;
    helped(&agent, "widget qqxy").await;
    embedder.set(Mood::Slow);
    let mut began = Instant::now();
    for n in 0..3 {
        began = Instant::now();
        let answer = search(&agent, &format!("slow widget {n}")).await;
        assert_eq!((&answer["ranking"], &answer["total"]), (&json!("bm25"), &json!(2)), "{answer}");
        assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    }
    // the third is counted a moment after its search was answered
    let told = "searches of a tenant go on without embeddings";
    settle(true, SOON, || async { stage.gateway.log().contains(told) }).await;
    // three in a row: now nobody is asked, let alone waited for, until a rest is over. A machine so busy that it is over
    // by then has the next, longer one
    let mut is_left_alone = false;
    for rest in RESTS {
        let (before, query) = (began, format!("widget in a rest of {rest:?}"));
        began = Instant::now();
        assert_eq!(search(&agent, &query).await["ranking"], "bm25");
        is_left_alone = embedder.sent(&query) == 0;
        if is_left_alone {
            break;
        }
        let since = before.elapsed();
        assert!(since >= WAIT + rest + WAIT, "asked after {since:?}");
    }
    assert!(is_left_alone, "the machine is too busy to tell");
    // what is known already helps
    let answer = search(&agent, "widget qqxy").await;
    assert_eq!(names(&answer), ["up:widget_two", "up:widget_one"]);
    assert_eq!(answer["ranking"], "bm25+embeddings");
    embedder.set(Mood::Good);
    let began = Instant::now();
    eventually("the service to be asked again", SOON, || async {
        let query = format!("qqxy after {:?}", began.elapsed());
        (search(&agent, &query).await["ranking"] == "bm25+embeddings").then_some(())
    })
    .await;
    // none of them is missing in the log, and none failed
    search(&agent, "the last one").await;
    eventually("the last record", SOON, || async {
        let items = tenant.platform.items("/api/v1/activity?type=search").await;
        items.iter().any(|item| item["arguments"].to_string().contains("the last one")).then_some(())
    })
    .await;
    tenant.records("type=search&status=error", 0).await;
}

#[tokio::test]
async fn one_tenants_questions_are_its_own_affair() {
    let (embedder, stage, tenant, _upstream) = stage().await;
    let neighbour = stage.tenant("neighbour").await;
    neighbour.add("up", &Upstream::handshake(vec![Tool::new("widget_two")]).await).await;
    let (agent, hers) = (tenant.agent().await, neighbour.agent().await);
    helped(&agent, "qqxy").await;
    helped(&hers, "qqxy").await;
    for n in 0..3 {
        assert_eq!(search(&agent, &format!("unbearable {n}")).await["ranking"], "bm25");
    }
    let asked = embedder.requests().len();
    assert_eq!(search(&agent, "widget after that").await["ranking"], "bm25");
    assert_eq!(embedder.requests().len(), asked, "its questions are not asked for a while");
    assert_eq!(search(&hers, "widget after that").await["ranking"], "bm25+embeddings");
    // what would be the same with any question is everybody's
    embedder.set(Mood::Status(429));
    for n in 0..3 {
        assert_eq!(search(&hers, &format!("too many {n}")).await["ranking"], "bm25");
    }
    embedder.set(Mood::Good);
    let asked = embedder.requests().len();
    for agent in [&agent, &hers] {
        assert_eq!(search(agent, "widget while it rests").await["ranking"], "bm25");
    }
    assert_eq!(embedder.requests().len(), asked);
}

#[tokio::test]
async fn bad_answers_are_no_answers() {
    let (embedder, _stage, tenant, _upstream) = stage().await;
    let agent = tenant.agent().await;
    helped(&agent, "qqxy").await;
    for (n, mood) in [
        Mood::Endless,
        Mood::OneMore,
        // one that works between, so that the service is asked each time
        Mood::Good,
        Mood::OneLess,
        Mood::NotANumber,
        Mood::Good,
        Mood::Html,
        Mood::Status(429),
        Mood::Good,
        Mood::Status(302),
        Mood::Stranger,
        Mood::Good,
    ]
    .into_iter()
    .enumerate()
    {
        embedder.set(mood);
        let asked = embedder.requests().len();
        let answer = search(&agent, &format!("widget in mood {n}")).await;
        let expected = if mood == Mood::Good { "bm25+embeddings" } else { "bm25" };
        assert_eq!(
            (&answer["ranking"], &answer["total"]),
            (&json!(expected), &json!(2)),
            "{mood:?}: {answer}"
        );
        assert!(embedder.requests().len() > asked, "{mood:?}: it was not asked");
    }
}

#[tokio::test]
async fn bad_vectors_are_not_kept() {
    let embedder = Embedder::start(&[("two", "qqxy")]).await;
    let stage = Stage::with(&embedder.settings()).await;
    let tenant = stage.tenant("acme").await;
    let tools = ["widget_one", "widget_two", "indigestible"].map(Tool::new);
    let upstream = Upstream::handshake(tools.to_vec()).await;
    embedder.set(Mood::OneLess);
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    // a batch that is refused is halved; for the halves that are not, a vector is missing
    eventually("the batch to be halved", SOON, || async {
        embedder.requests().iter().any(|request| request.texts.len() < 3).then_some(())
    })
    .await;
    assert_eq!(stage.database.count("select count(*) from tool_embeddings").await, 0);
    assert_eq!(search(&agent, "widget qqxy").await["ranking"], "bm25");
    embedder.set(Mood::Good);
    helped(&agent, "widget qqxy").await;
    settle(2, SOON, || stage.database.count("select count(*) from tool_embeddings")).await;
    let refused = || embedder.sent("indigestible");
    let before = refused();
    tenant.add("more", &Upstream::handshake(vec![Tool::new("widget_three")]).await).await;
    settle(3, SOON, || stage.database.count("select count(*) from tool_embeddings")).await;
    assert_eq!(refused(), before, "what was refused is not sent again and again");
}
