//! Messages on their way out: one buffer, or a large answer in pieces that are not copied.
//!
//! The pieces share the memory of what came from the upstream. So they count in their tenant's share of memory for as long
//! as they wait for a slow client.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::iter;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::jsonrpc::{MESSAGE_END, message, message_start};
use crate::faces::sse::{EVENT_END, EVENT_START, event, one_line};
use crate::gateway::FREE_BYTES_MAX;

/// Largest answer that is copied into one buffer, in bytes: the size up to which answers are not counted. A copy of a larger
/// one would not hold memory of the tenant's share.
const WHOLE_BYTES_MAX: usize = FREE_BYTES_MAX;
/// Size of one chunk of a large answer in an event stream, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// Message on its way out.
#[derive(Debug)]
pub(super) enum Text {
    /// Message in one buffer.
    Whole(String),
    /// Message in pieces that are not copied.
    Pieces(VecDeque<Bytes>),
}

/// Chunks of an event.
pub(super) type Chunks = Box<dyn Iterator<Item = Bytes> + Send>;

impl Text {
    /// Returns a response message around an object: `before`, then the parts of `raw` that are the `rest`.
    pub(super) fn around(id: &str, member: &str, before: &[&str], raw: &Bytes, rest: &[&str]) -> Text {
        let bytes = |parts: &[&str]| parts.iter().map(|part| part.len()).sum::<usize>();
        let is_whole = bytes(rest) <= WHOLE_BYTES_MAX;
        let room = bytes(before) + if is_whole { bytes(rest) } else { 0 };
        let mut out = message_start(id, member, room);
        before.iter().for_each(|part| out.push_str(part));
        if is_whole {
            rest.iter().for_each(|part| out.push_str(part));
            out.push_str(MESSAGE_END);
            return Text::Whole(out);
        }
        let rest = rest.iter().filter(|part| !part.is_empty()).map(|part| raw.slice_ref(part.as_bytes()));
        let end = Bytes::from_static(MESSAGE_END.as_bytes());
        Text::Pieces(iter::once(Bytes::from(out)).chain(rest).chain([end]).collect())
    }

    /// Returns a response message around a whole object, which is JSON and so UTF-8.
    pub(super) fn whole(id: &str, member: &str, raw: &Bytes) -> Text {
        if raw.len() <= WHOLE_BYTES_MAX {
            let text = std::str::from_utf8(raw).unwrap_or("{}");
            return Text::Whole(message(id, member, text));
        }
        let start = Bytes::from(message_start(id, member, 0));
        let end = Bytes::from_static(MESSAGE_END.as_bytes());
        Text::Pieces([start, raw.clone(), end].into())
    }

    /// Returns a response message around `raw`, with `other` in place of a part of it.
    pub(super) fn replacing(id: &str, member: &str, raw: &Bytes, part: &Range<usize>, other: &str) -> Text {
        let text = std::str::from_utf8(raw).unwrap_or("{}");
        let (Some(start), Some(end)) = (text.get(..part.start), text.get(part.end..)) else {
            return Text::whole(id, member, raw);
        };
        if raw.len() <= WHOLE_BYTES_MAX {
            return Text::Whole(message(id, member, &[start, other, end].concat()));
        }
        let pieces = [
            Bytes::from(message_start(id, member, 0)),
            raw.slice_ref(start.as_bytes()),
            Bytes::copy_from_slice(other.as_bytes()),
            raw.slice_ref(end.as_bytes()),
            Bytes::from_static(MESSAGE_END.as_bytes()),
        ];
        Text::Pieces(pieces.into())
    }

    /// Returns the message as one server-sent event.
    pub(super) fn into_event(self) -> Chunks {
        match self {
            Text::Whole(text) => Box::new(iter::once(event(&text))),
            Text::Pieces(pieces) => {
                let start = iter::once(Bytes::from_static(EVENT_START.as_bytes()));
                let end = iter::once(Bytes::from_static(EVENT_END.as_bytes()));
                Box::new(start.chain(pieces.into_iter().flat_map(lines)).chain(end))
            }
        }
    }
}

/// Splits a piece into chunks without line breaks. At most one chunk is copied at a time.
fn lines(mut piece: Bytes) -> impl Iterator<Item = Bytes> {
    iter::from_fn(move || {
        let chunk = piece.split_to(piece.len().min(CHUNK_BYTES));
        (!chunk.is_empty()).then(|| one_line(chunk))
    })
}

impl From<Text> for Body {
    fn from(text: Text) -> Body {
        match text {
            Text::Whole(text) => text.into(),
            Text::Pieces(pieces) => Body::new(Pieces(pieces)),
        }
    }
}

/// Body of known length that yields its pieces one by one.
struct Pieces(VecDeque<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::BodyExt;

    use super::*;

    fn object(bytes: usize) -> Bytes {
        format!("{{\"a\":\r\n\"{}\"}}", "x".repeat(bytes)).into()
    }

    fn around(raw: &Bytes) -> Text {
        let text = std::str::from_utf8(raw).unwrap();
        let (start, rest) = text.split_at(1);
        Text::around("7", "result", &[start, "\"b\":1,"], raw, &[rest, ""])
    }

    fn expected(raw: &Bytes) -> String {
        let rest = std::str::from_utf8(raw).unwrap().split_at(1).1;
        format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"b":1,{rest}}}"#)
    }

    #[tokio::test]
    async fn a_body_is_the_message_and_knows_its_length() {
        for bytes in [10, WHOLE_BYTES_MAX, 3 * CHUNK_BYTES] {
            let raw = object(bytes);
            let text = around(&raw);
            assert_eq!(matches!(text, Text::Whole(_)), bytes < 100);
            let body = Body::from(text);
            assert_eq!(body.size_hint().exact(), Some(expected(&raw).len() as u64));
            assert_eq!(body.collect().await.unwrap().to_bytes(), expected(&raw));
        }
    }

    #[tokio::test]
    async fn a_part_is_replaced() {
        for bytes in [10, 2 * WHOLE_BYTES_MAX] {
            let raw = object(bytes);
            let text = Text::replacing("7", "result", &raw, &(2..3), "bc");
            let rest = std::str::from_utf8(&raw).unwrap().split_at(3).1;
            let expected = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"bc{rest}}}"#);
            assert_eq!(Body::from(text).collect().await.unwrap().to_bytes(), expected);
        }
    }

    #[test]
    fn an_event_is_one_line_of_data() {
        for bytes in [10, 3 * CHUNK_BYTES] {
            let raw = object(bytes);
            let message = expected(&raw).replace(['\r', '\n'], " ");
            let event: Vec<u8> = around(&raw).into_event().flatten().collect();
            assert_eq!(String::from_utf8(event).unwrap(), format!("event: message\ndata: {message}\n\n"));
        }
    }

    #[test]
    fn what_waits_keeps_the_memory_of_the_answer() {
        struct Kept {
            answer: Bytes,
            _share: std::sync::Arc<()>,
        }
        impl AsRef<[u8]> for Kept {
            fn as_ref(&self) -> &[u8] {
                &self.answer
            }
        }
        let share = std::sync::Arc::new(());
        let answer = object(2 * WHOLE_BYTES_MAX);
        let raw = Bytes::from_owner(Kept { answer, _share: std::sync::Arc::clone(&share) });
        let text = around(&raw);
        drop(raw);
        let mut chunks = text.into_event();
        assert_eq!(chunks.next().unwrap(), EVENT_START);
        assert_eq!(std::sync::Arc::strong_count(&share), 2);
        drop(chunks);
        assert_eq!(std::sync::Arc::strong_count(&share), 1);
    }
}
