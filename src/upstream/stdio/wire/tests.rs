//! Questions and log messages of a program, which many callers may share.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::past::{ECHO_TIME, STRAYS_MAX};
use super::*;
use crate::domain::relay::{LogLevel, Relay};
use crate::domain::rounds::Capabilities;
use crate::upstream::admission::shares::{MemoryLimits, TenantShares};
use crate::upstream::protocol::events::{Hears, QuestionReply, ServerQuestion};
use crate::upstream::protocol::sent::Sent;
use crate::upstream::stdio::journal::ServerLog;
use crate::upstream::stdio::reader::{LineReader, STALL_WAIT_MAX};
use crate::upstream::target::command::ProgramCommand;

const ALL: Relay = Relay { elicitation: true, sampling: true, roots: true, logging: true };

/// Program's end of the pipe, with the messages sent to the program.
struct Program {
    pipe: DuplexStream,
    wire: Arc<PipeWire>,
    outgoing: Outgoing,
}

/// Request under way, with what its caller hears.
struct Caller {
    id: u64,
    heard: mpsc::Receiver<CallEvent>,
    call: JoinHandle<Result<Answer, UpstreamError>>,
}

impl Program {
    fn start() -> Program {
        let (pipe, output) = duplex(64 * 1024);
        let (wire, outgoing) = PipeWire::new();
        let wire = Arc::new(wire);
        let share = TenantShares::new(MemoryLimits::default()).of(Uuid::nil());
        let command = Arc::new(ProgramCommand::new(vec![], [].into(), vec![]));
        let log = ServerLog::new((Uuid::nil(), Uuid::nil()), command, None, share.log_turns());
        let reader =
            LineReader { wire: Arc::clone(&wire), log: Arc::new(log), share, stall_max: STALL_WAIT_MAX };
        tokio::spawn(reader.read(output));
        Program { pipe, wire, outgoing }
    }

    async fn says(&mut self, message: &Value) {
        self.pipe.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Returns the next message to the program.
    async fn gets(&mut self) -> Value {
        serde_json::from_slice(&self.outgoing.recv().await.unwrap()).unwrap()
    }

    /// Asks for roots; returns the answer if that comes from no client.
    async fn is_refused(&mut self, id: u64) -> i64 {
        self.says(&json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create"})).await;
        let reply = self.gets().await;
        assert_eq!(reply["id"], id, "{reply}");
        reply["error"]["code"].as_i64().unwrap()
    }

    async fn answers(&mut self, id: u64) {
        self.says(&json!({"jsonrpc": "2.0", "id": id, "result": {}})).await;
    }

    /// Begins a request, whose caller can be asked everything if it is a call.
    async fn begin(&mut self, is_call: bool, may_ask: bool) -> Caller {
        self.begin_as(is_call.then(CallerMark::default), may_ask).await
    }

    async fn begin_as(&mut self, caller: Option<CallerMark>, may_ask: bool) -> Caller {
        let (events, heard) = mpsc::channel(8);
        let questions = Capabilities::read(r#"{"elicitation":{},"roots":{}}"#).unwrap();
        let hears =
            Hears { events, progress: false, log: Some(LogLevel::Warning), questions: Some(questions) };
        let (wire, id) = (Arc::clone(&self.wire), self.wire.id());
        let call = tokio::spawn(async move {
            let (sent, places) = (Sent::default(), Semaphore::new(8));
            let ear = Ear { hears: &hears, relay: ALL, sent: &sent, places: &places };
            let request = PipeRequest {
                id,
                body: Bytes::from(format!(r#"{{"id":{id}}}"#)),
                bytes_max: 1000,
                caller,
                ear: caller.map(|_| ear),
                may_ask,
                dispatched: &sent.dispatched,
                farewell: None,
            };
            wire.ask(request).await
        });
        assert_eq!(self.gets().await["id"], id);
        Caller { id, heard, call }
    }
}

impl Caller {
    async fn question(&mut self) -> ServerQuestion {
        match self.heard.recv().await {
            Some(CallEvent::Question(question)) => question,
            other => panic!("no question: {other:?}"),
        }
    }

    /// Gives the call up, as a client that leaves.
    async fn leaves(self) -> u64 {
        self.call.abort();
        drop(self.call.await);
        self.id
    }
}

#[tokio::test]
async fn the_only_call_is_asked_and_nobody_else() {
    let mut program = Program::start();
    assert_eq!(program.is_refused(1).await, -32601, "no call is under way");
    let mut first = program.begin(true, true).await;
    let own = program.begin(false, false).await;
    program
        .says(&json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"a": 1}}))
        .await;
    let question = first.question().await;
    assert_eq!((question.params.as_ref(), question.reply.is_closed()), (&br#"{"a":1}"#[..], false));

    let second = program.begin(true, true).await;
    assert_eq!(program.is_refused(2).await, -32601, "it may be about either call");
    question.reply.send(QuestionReply::Result("{\"roots\":\n[]}".into())).unwrap();
    assert_eq!(program.gets().await, json!({"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}));
    for id in [second.id, first.id, own.id] {
        program.answers(id).await;
    }
    for caller in [first, second, own] {
        assert!(caller.call.await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn calls_that_were_given_up_count_until_their_answers_come() {
    let mut program = Program::start();
    let left = program.begin(true, true).await.leaves().await;
    let mut next = program.begin(true, true).await;
    assert_eq!(program.is_refused(1).await, -32601, "it may be about the call that was given up");
    program.answers(left).await;
    program.says(&json!({"jsonrpc": "2.0", "id": 2, "method": "elicitation/create"})).await;
    let question = next.question().await;
    // the call that has the question ends: nobody is to answer it any more
    program.answers(next.id).await;
    assert!(next.call.await.unwrap().is_ok());
    assert!(question.reply.is_closed());
}

#[tokio::test]
async fn what_was_taken_back_or_is_not_allowed_is_not_asked() {
    let mut program = Program::start();
    let modern = program.begin(true, false).await;
    assert_eq!(program.is_refused(1).await, -32601, "this era asks otherwise");
    program.answers(modern.id).await;
    assert!(modern.call.await.unwrap().is_ok());

    let mut caller = program.begin(true, true).await;
    program.says(&json!({"jsonrpc": "2.0", "id": 2, "method": "sampling/createMessage"})).await;
    assert_eq!(program.gets().await["error"]["code"], -32601, "the client has not declared it");
    program.says(&json!({"jsonrpc": "2.0", "id": 3, "method": "elicitation/create"})).await;
    let mut question = caller.question().await;
    let taken_back = json!({"requestId": 3});
    program.says(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": taken_back})).await;
    question.reply.closed().await;
    program.answers(caller.id).await;
    assert!(caller.call.await.unwrap().is_ok());
}

#[tokio::test]
async fn log_messages_go_to_the_only_call() {
    let mut program = Program::start();
    let log = |level: &str| {
        let params = json!({"level": level, "data": level});
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    };
    let mut first = program.begin(true, true).await;
    for level in ["info", "error"] {
        program.says(&log(level)).await;
    }
    let Some(CallEvent::Log(params)) = first.heard.recv().await else { panic!("nothing said") };
    assert_eq!(serde_json::from_slice::<Value>(&params).unwrap()["data"], "error");
    let mut second = program.begin(true, true).await;
    program.says(&log("alert")).await;
    for caller in [&first, &second] {
        program.answers(caller.id).await;
    }
    for caller in [&mut first, &mut second] {
        assert!((&mut caller.call).await.unwrap().is_ok());
        assert!(caller.heard.recv().await.is_none(), "it may be about either call");
    }
}

#[tokio::test]
async fn what_is_said_late_reaches_no_other_caller() {
    let (key, other) = (Some(Uuid::from_u128(1)), Some(Uuid::from_u128(2)));
    let session = |id| Some(Uuid::from_u128(id));
    let first = CallerMark { key, session: session(1) };
    let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error"}});
    for (next, is_same) in [
        (first, true),
        (CallerMark { key, session: session(2) }, false),
        (CallerMark { key, session: None }, false),
        (CallerMark { key: other, session: session(1) }, false),
    ] {
        let mut program = Program::start();
        let before = program.begin_as(Some(first), true).await;
        program.answers(before.id).await;
        assert!(before.call.await.unwrap().is_ok());
        let mut caller = program.begin_as(Some(next), true).await;
        program.says(&log).await;
        if is_same {
            program.says(&json!({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create"})).await;
            assert!(matches!(caller.heard.recv().await, Some(CallEvent::Log(_))));
            drop(caller.question().await);
        } else {
            assert_eq!(program.is_refused(1).await, -32601, "{next:?}");
        }
        program.answers(caller.id).await;
        assert!(caller.call.await.unwrap().is_ok());
        assert!(caller.heard.recv().await.is_none(), "{next:?}");
    }
}

/// Callers of two keys.
const TWO: [CallerMark; 2] = [
    CallerMark { key: Some(Uuid::from_u128(1)), session: None },
    CallerMark { key: Some(Uuid::from_u128(2)), session: None },
];

#[test]
fn strays_are_forgotten_after_a_time_however_many() {
    let (now, [caller, _]) = (Instant::now(), TWO);
    let mut past = Past::default();
    assert!(past.is_over_for(caller, now));
    past.given_up(1, caller, now);
    past.answered_late(2, now);
    assert!(!past.is_over_for(caller, now));
    past.answered_late(1, now);
    assert!(past.is_over_for(caller, now));
    for id in 0..=STRAYS_MAX as u64 {
        past.given_up(id, caller, now);
    }
    for id in 0..=STRAYS_MAX as u64 {
        past.answered_late(id, now);
    }
    assert!(!past.is_over_for(caller, now), "one more than is kept track of");
    assert!(past.is_over_for(caller, now + ECHO_TIME));
}

#[test]
fn calls_of_others_count_for_a_time_after_their_end() {
    let (now, [one, two]) = (Instant::now(), TWO);
    let second = Duration::from_secs(1);
    let mut past = Past::default();
    past.ended(None, now);
    past.ended(Some(one), now);
    past.ended(Some(two), now + second);
    past.ended(Some(two), now + 2 * second);
    for (caller, over) in [(one, now + 2 * second + ECHO_TIME), (two, now + ECHO_TIME)] {
        assert!(!past.is_over_for(caller, over - second), "{caller:?}");
        assert!(past.is_over_for(caller, over), "{caller:?}");
    }
    // a call that was given up ends with its late answer
    past.given_up(1, one, now + 3 * second);
    past.answered_late(1, now + 9 * second);
    assert!(!past.is_over_for(two, now + 8 * second + ECHO_TIME));
    assert!(past.is_over_for(two, now + 9 * second + ECHO_TIME));
}
