//! Reads what a program writes. All of it is untrusted: lines without end, floods, nonsense.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::ChildStderr;
use tokio::time::{Instant, sleep, timeout};

use super::journal::{LINE_BYTES_MAX, ServerLog};
use super::lines::{Edges, Line, Lines};
use super::wire::{PipeWire, ProgramSays};
use crate::domain::log_line::Raw;
use crate::domain::relay::QuestionKind;
use crate::upstream::admission::pace::Pace;
use crate::upstream::admission::shares::{MemoryHold, Share};
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::jsonrpc::{self, RpcMessage};
use crate::upstream::protocol::offers::Announced;
use crate::upstream::protocol::questions::{ID_BYTES_MAX, PAGE_DONE};

/// Most bytes of one read.
const READ_BYTES: usize = 64 * 1024;
/// Bytes of unsolicited messages that are read at once, and per second. A program that writes more is slowed down.
const CHATTER_BYTES: u32 = 256 * 1024;
/// Bytes of standard error that are read at once, and per second; the log leaves most of them out.
const STDERR_BYTES: u32 = 4 * 1024 * 1024;

/// Longest wait for the rest of a line that holds memory of its tenant.
pub(super) const STALL_WAIT_MAX: Duration = Duration::from_secs(10);

/// Reader of a program's standard output, to its end.
pub(super) struct LineReader {
    pub(super) wire: Arc<PipeWire>,
    pub(super) log: Arc<ServerLog>,
    pub(super) share: Share,
    /// Longest wait for the rest of a line: [`STALL_WAIT_MAX`], except in tests.
    pub(super) stall_max: Duration,
}

impl LineReader {
    pub(super) async fn read(self, mut output: impl AsyncRead + Unpin) {
        let mut lines = Lines::default();
        let mut pace = Pace::new(CHATTER_BYTES, CHATTER_BYTES);
        let mut memory = self.share.answer(None);
        // why the line that is being read is not kept
        let mut given_up = None;
        loop {
            let wait_max = memory.is_held().then_some(self.stall_max);
            match more_within(wait_max, &mut output, &mut lines.input).await {
                Some(true) => {}
                Some(false) => return,
                None => {
                    lines.give_up();
                    (memory, given_up) = (self.share.answer(None), Some(FailureKind::Invalid));
                    continue;
                }
            }
            if given_up.is_none() && memory.grow(lines.input.len()).await.is_err() {
                (memory, given_up) = (self.share.answer(None), Some(FailureKind::Crowded));
            }
            let mut chatter = 0;
            // a line that is not kept still ends at its line end
            while let Some(line) = lines.next(given_up.map_or_else(|| self.wire.bytes_max(), |_| 0)) {
                let fault = given_up.take().unwrap_or(FailureKind::TooLarge);
                let memory = std::mem::replace(&mut memory, self.share.answer(None));
                chatter += self.take(line, memory, fault);
            }
            let pause = pace.take(chatter, Instant::now());
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
    }

    /// Handles a line; returns how many of its bytes nobody asked for.
    fn take(&self, line: Line, memory: MemoryHold, fault: FailureKind) -> usize {
        match line {
            Line::Whole(line) => self.message(&line, memory),
            Line::Long(edges) if self.too_long(&edges, fault) => 0,
            Line::Long(edges) => edges.len,
        }
    }

    fn message(&self, line: &Bytes, memory: MemoryHold) -> usize {
        if line.trim_ascii().is_empty() {
            return line.len();
        }
        let Ok(message) = RpcMessage::read(line) else {
            self.log.garbage("something that is no message", line);
            return if self.is_broken_answer(line) { 0 } else { line.len() };
        };
        match (message.method.as_deref(), message.id) {
            (None, id) => {
                let waiter = id.and_then(|id| Some((jsonrpc::number(id)?, id)));
                let waiter = waiter.and_then(|(id, _)| Some((id, self.wire.take(id)?)));
                // an answer that nobody waits for any more
                let Some((id, waiter)) = waiter else { return line.len() };
                let answer = match line.len() > waiter.bytes_max {
                    true => Err(UpstreamError::sent(FailureKind::TooLarge, "")),
                    false if memory.is_held() => jsonrpc::read_answer(&memory.keep(line.clone()), id),
                    false => message.answer(line, id),
                };
                drop(waiter.answer.send(answer));
                0
            }
            (Some(_), Some(id)) if id.get().len() > ID_BYTES_MAX => {
                self.log.garbage("a request with an id that is too long,", b"");
                line.len()
            }
            (Some("ping"), Some(id)) => {
                self.wire.tell(&jsonrpc::pong(id));
                line.len()
            }
            (Some(method), Some(id)) => {
                let says = ProgramSays::Asks {
                    method: method.into(),
                    id: id.to_owned(),
                    params: message.params.map(|params| kept(line, params, memory)),
                };
                // folders are asked for once per program, on behalf of all its callers: nobody's may stand for the others'
                let is_asked = matches!(
                    QuestionKind::parse(method),
                    Some(QuestionKind::Elicitation | QuestionKind::Sampling)
                );
                if !is_asked || !self.wire.ask_caller(says) {
                    self.wire.tell(&jsonrpc::unsupported(id));
                }
                line.len()
            }
            (Some("notifications/progress"), None) => {
                let token =
                    message.params.and_then(|params| Some((jsonrpc::progress_token(params)?, params)));
                if let Some((token, params)) = token {
                    self.wire.progress(token, jsonrpc::slice(line, params));
                }
                line.len()
            }
            (Some("notifications/message"), None) => {
                if let Some(params) = message.params {
                    self.wire.log(params, || kept(line, params, memory));
                }
                line.len()
            }
            (Some(PAGE_DONE), None) => {
                if let Some(params) = message.params {
                    self.wire.end_page(&kept(line, params, memory));
                }
                line.len()
            }
            (Some("notifications/cancelled"), None) => {
                let id = message.params.and_then(jsonrpc::cancelled_id);
                if let Some(id) = id.filter(|id| id.get().len() <= ID_BYTES_MAX) {
                    self.wire.take_back(id);
                }
                line.len()
            }
            (Some(method), None) => {
                if Announced::of_method(method).is_some() {
                    self.wire.announce();
                }
                line.len()
            }
        }
    }

    /// Handles a line that was not kept: fails the call that it answers, whose id is near one of its ends. Returns
    /// whether a caller waited.
    fn too_long(&self, edges: &Edges, fault: FailureKind) -> bool {
        self.log.garbage(&format!("a line of {} bytes, which is too long,", edges.len), b"");
        self.fail(edges, UpstreamError::sent(fault, ""))
    }

    /// Fails the call that a malformed line seems to answer. Returns whether a caller waited.
    fn is_broken_answer(&self, line: &[u8]) -> bool {
        let edges = Edges::of(line);
        // programs also write lines of their own logs, with ids of their own
        let is_meant = [&edges.head, &edges.tail].iter().any(|edge| holds(edge, b"\"jsonrpc\""));
        is_meant && self.fail(&edges, UpstreamError::invalid("its answer cannot be read"))
    }

    /// Fails the call that a line answers, by the id near one of its ends. Returns whether a caller waited.
    fn fail(&self, edges: &Edges, error: UpstreamError) -> bool {
        let waiter = id_of(edges).and_then(|id| self.wire.take(id));
        waiter.is_some_and(|waiter| waiter.answer.send(Err(error)).is_ok())
    }
}

/// Returns the part of a line that a raw value covers, with the line's memory.
fn kept(line: &Bytes, raw: &RawValue, memory: MemoryHold) -> Bytes {
    let part = jsonrpc::slice(line, raw);
    if memory.is_held() { memory.keep(part) } else { part }
}

/// Returns whether a short text contains another.
fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Returns the id of an answer, from its beginning or its end as the common libraries write them.
fn id_of(edges: &Edges) -> Option<u64> {
    let digits = |text: &str| -> Option<u64> {
        let text = text.trim_start();
        let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
        text.get(..end)?.parse().ok()
    };
    let head = String::from_utf8_lossy(&edges.head);
    let before_result = head.split("\"result\"").next().unwrap_or_default();
    let tail = String::from_utf8_lossy(&edges.tail);
    let last = tail.trim_end().rsplit_once("\"id\":").map(|(_, rest)| rest);
    let at_end = last.filter(|rest| {
        rest.trim_start_matches([' ', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) == "}"
    });
    before_result.split_once("\"id\":").and_then(|(_, rest)| digits(rest)).or_else(|| at_end.and_then(digits))
}

/// Reads standard error to its end, into the server's log.
pub(super) async fn log_errors(mut errors: ChildStderr, log: Arc<ServerLog>) {
    let mut lines = Lines::default();
    let mut pace = Pace::new(STDERR_BYTES, STDERR_BYTES);
    loop {
        let before = lines.input.len();
        if !more(&mut errors, &mut lines.input).await {
            break;
        }
        let read = lines.input.len().saturating_sub(before);
        while let Some(line) = lines.next(LINE_BYTES_MAX) {
            log.stderr(shown(&line));
        }
        let pause = pace.take(read, Instant::now());
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
    if let Some(line) = lines.rest() {
        log.stderr(shown(&line));
    }
}

fn shown(line: &Line) -> Raw<'_> {
    match line {
        Line::Whole(line) => Raw::Whole(line),
        Line::Long(edges) => Raw::Beginning(&edges.head),
    }
}

/// Reads more input. Returns `false` at the end of the input, `None` if nothing comes within `wait_max`.
async fn more_within(
    wait_max: Option<Duration>,
    from: &mut (impl AsyncRead + Unpin),
    into: &mut BytesMut,
) -> Option<bool> {
    match wait_max {
        Some(wait_max) => timeout(wait_max, more(from, into)).await.ok(),
        None => Some(more(from, into).await),
    }
}

/// Reads more input. Returns `false` at the end of the input.
async fn more(from: &mut (impl AsyncRead + Unpin), into: &mut BytesMut) -> bool {
    if into.capacity() - into.len() < READ_BYTES / 4 {
        into.reserve(READ_BYTES);
    }
    let mut limited = into.limit(READ_BYTES);
    matches!(from.read_buf(&mut limited).await, Ok(read) if read > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
    use uuid::Uuid;

    use super::*;
    use crate::upstream::admission::shares::{MemoryLimits, TenantShares};
    use crate::upstream::protocol::events::CallerMark;
    use crate::upstream::protocol::jsonrpc::Answer;
    use crate::upstream::stdio::wire::{Outgoing, PipeRequest};
    use crate::upstream::target::command::ProgramCommand;

    const MIB: usize = 1024 * 1024;

    /// Program's end of the pipe, with the messages sent to the program and its tenant's share of 1 MiB.
    struct Rig {
        program: DuplexStream,
        wire: Arc<PipeWire>,
        outgoing: Outgoing,
        share: Share,
    }

    fn rig() -> Rig {
        let (program, output) = duplex(READ_BYTES);
        let (wire, outgoing) = PipeWire::new();
        let (wire, mut share) = (
            Arc::new(wire),
            TenantShares::new(MemoryLimits { tenant_bytes_max: MIB, ..MemoryLimits::default() })
                .of(Uuid::nil()),
        );
        share.memory_wait_max = Duration::from_millis(20);
        let command = Arc::new(ProgramCommand::new(vec![], [].into(), vec![]));
        let log = Arc::new(ServerLog::new((Uuid::nil(), Uuid::nil()), command, None, share.log_turns()));
        let reader = LineReader {
            wire: Arc::clone(&wire),
            log,
            share: share.clone(),
            stall_max: Duration::from_millis(20),
        };
        tokio::spawn(reader.read(output));
        Rig { program, wire, outgoing, share }
    }

    impl Rig {
        /// Sends a request, and writes these pieces as the program as soon as it has the request.
        async fn answered(&mut self, id: u64, pieces: &[&[u8]]) -> Result<Answer, UpstreamError> {
            let dispatched = AtomicBool::new(false);
            let body = Bytes::from_static(b"{}");
            let bytes_max = 2 * MIB;
            let request = PipeRequest {
                id,
                body,
                bytes_max,
                caller: Some(CallerMark::default()),
                ear: None,
                may_ask: false,
                dispatched: &dispatched,
                farewell: None,
            };
            let (outgoing, program) = (&mut self.outgoing, &mut self.program);
            let writes = async {
                outgoing.recv().await.unwrap();
                for piece in pieces {
                    program.write_all(piece).await.unwrap();
                }
            };
            tokio::join!(self.wire.ask(request), writes).0
        }
    }

    #[tokio::test]
    async fn after_an_answer_without_room_the_next_ones_are_heard() {
        let mut rig = rig();
        let mut other = rig.share.answer(None);
        other.grow(MIB).await.unwrap();
        let large = vec![b'x'; MIB];
        let head = &br#"{"jsonrpc":"2.0","id":1,"result":{"a":""#[..];
        let refused = rig.answered(1, &[head, &large, b"\"}}\n"]).await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Crowded);
        for id in 2..4 {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n");
            assert!(matches!(rig.answered(id, &[line.as_bytes()]).await, Ok(Answer::Result(_))), "{id}");
        }
        drop(other);
        assert!(
            rig.answered(4, &[br#"{"jsonrpc":"2.0","id":4,"result":{"a":""#, &large, b"\"}}\n"])
                .await
                .is_ok()
        );
    }

    #[tokio::test]
    async fn a_line_that_stops_in_its_middle_keeps_no_memory() {
        let mut rig = rig();
        rig.program.write_all(&vec![b'x'; MIB / 2]).await.unwrap();
        rig.share.memory_wait_max = STALL_WAIT_MAX;
        rig.share.answer(None).grow(MIB).await.unwrap();
        rig.program.write_all(b"and on\n").await.unwrap();
        let line = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert!(rig.answered(1, &[line, b"\n"]).await.is_ok());
    }

    #[tokio::test]
    async fn changes_of_lists_are_noted_and_nothing_else_is() {
        let mut rig = rig();
        for (method, is_noted) in [
            ("notifications/tools/list_changed", true),
            ("notifications/prompts/list_changed", true),
            ("notifications/resources/list_changed", true),
            ("notifications/resources/updated", false),
            ("notifications/message", false),
        ] {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}\n");
            rig.program.write_all(line.repeat(3).as_bytes()).await.unwrap();
            // the reply to the ping shows that the line before was read
            rig.program.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n").await.unwrap();
            rig.outgoing.recv().await.unwrap();
            assert_eq!((rig.wire.take_announced(), rig.wire.take_announced()), (is_noted, false), "{method}");
        }
    }

    #[tokio::test]
    async fn long_ids_of_its_own_requests_are_not_repeated() {
        let mut rig = rig();
        for length in [ID_BYTES_MAX, 10, ID_BYTES_MAX + 1, ID_BYTES_MAX - 2] {
            let id = "i".repeat(length);
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"method\":\"ping\"}}\n");
            rig.program.write_all(line.as_bytes()).await.unwrap();
        }
        for length in [10, ID_BYTES_MAX - 2] {
            let pong = rig.outgoing.recv().await.unwrap();
            assert!(pong.len() < length + 100 && pong.len() > length, "{pong:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_cannot_be_read_ends_its_call_at_once() {
        let mut rig = rig();
        let answers: [&[u8]; 4] = [
            br#"{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}"#,
            br#"{"jsonrpc":"2.0","id":1,"result":{"a":"#,
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":\"\xff\"}}",
            br#"{"result":{"a":tru},"jsonrpc":"2.0","id":1}"#,
        ];
        for answer in answers {
            let pieces = [answer, b"\n"];
            let asked = timeout(STALL_WAIT_MAX, rig.answered(1, &pieces));
            assert_eq!(asked.await.unwrap().unwrap_err().kind, FailureKind::Invalid);
        }
        // a line that only looks like an answer is none
        let said: [&[u8]; 3] = [
            b"{\"id\":2,\"level\":\"info\"\n",
            b"jsonrpc \"id\":2\n",
            b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n",
        ];
        assert!(rig.answered(2, &said).await.is_ok());
    }

    #[test]
    fn the_id_of_an_answer_that_was_not_kept() {
        let edges = |head: &str, tail: &str| Edges { head: head.into(), tail: tail.into(), len: 9_999_999 };
        let table = [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":"x"#, r#"x"}}"#, Some(7)),
            (r#"{"id": 12 ,"jsonrpc":"2.0","result":{"#, "}}", Some(12)),
            (r#"{"result":{"id":5,"x":"#, r#""},"jsonrpc":"2.0","id":8}"#, Some(8)),
            (r#"{"result":{"id":5,"x":"#, r#""},"jsonrpc":"2.0","id": 81 }"#, Some(81)),
            (r#"{"result":{"id":5,"x":"#, r#","y":{"id":3}}}"#, None),
            ("garbage", "garbage", None),
        ];
        for (head, tail, want) in table {
            assert_eq!(id_of(&edges(head, tail)), want, "{head} … {tail}");
        }
    }
}
