//! A service that is away, slow or hostile costs a search its help and a bounded wait, nothing else.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{SOON, helped, names, search, stage};
use crate::support::{Embedder, Mood, Stage, Tool, Upstream, eventually, settle};

/// A search that does not wait longer than it should, on a busy machine.
const PROMPT: Duration = Duration::from_millis(1500);

#[tokio::test]
async fn a_search_waits_shortly_and_then_not_at_all() {
    let (embedder, stage, tenant, _upstream) = stage().await;
    let agent = tenant.agent().await;
    helped(&agent, "widget qqxy").await;
    embedder.set(Mood::Slow);
    for n in 0..3 {
        let began = Instant::now();
        let answer = search(&agent, &format!("slow widget {n}")).await;
        assert_eq!((&answer["ranking"], &answer["total"]), (&json!("bm25"), &json!(2)), "{answer}");
        assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    }
    // three in a row: now nobody is asked, let alone waited for
    let asked = embedder.requests().len();
    let answer = search(&agent, "another slow widget").await;
    assert_eq!((&answer["ranking"], embedder.requests().len()), (&json!("bm25"), asked));
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
    let log = stage.gateway.log();
    assert!(log.contains("searches of a tenant go on without embeddings"), "{log}");
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
