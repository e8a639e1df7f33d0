//! Vectors from an embeddings service, of tools and of a question, and their similarity.

use super::tokens::{Piece, for_each_piece};
use super::{Document, NAME_BYTES_MAX};

/// Most numbers of a vector; common models have fewer.
pub const DIMS_MAX: usize = 4096;
/// Longest text of a tool that is sent to the service, in bytes, about 1000 tokens.
const TEXT_BYTES_MAX: usize = 4096;
/// Longest part of the description in a tool's text, in bytes.
const DESCRIPTION_BYTES_MAX: usize = 3000;
/// Version of the text of a tool. A change of [`text_of`] needs a new one, as the vectors change with it.
pub const TEXT_VERSION: u32 = 1;
/// Steps from 0 to the largest number of a stored vector.
const STEPS: f32 = 127.0;

/// Fewest documents for which the average similarity is subtracted.
const CENTRED_FROM: usize = 16;

/// Direction of a vector, with one byte per number.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    steps: Box<[i8]>,
    length: f32,
}

impl Embedding {
    /// Creates an embedding from a vector; `None` for a zero vector, numbers that are not finite, or too many of them.
    pub fn of(vector: &[f32]) -> Option<Embedding> {
        if vector.len() > DIMS_MAX || !vector.iter().all(|n| n.is_finite()) {
            return None;
        }
        let most = vector.iter().fold(0.0_f32, |most, n| most.max(n.abs()));
        if most <= 0.0 {
            return None;
        }
        // divided first, as the largest number may be as small as a float can be
        Some(Embedding::from_steps(vector.iter().map(|n| (n / most * STEPS).round() as i8).collect()))
    }

    /// Reads the bytes of [`Embedding::to_bytes`]; `None` for bytes that it never returns.
    pub fn from_bytes(bytes: &[u8]) -> Option<Embedding> {
        let is_vector = bytes.len() <= DIMS_MAX && bytes.iter().any(|byte| *byte != 0);
        is_vector.then(|| Embedding::from_steps(bytes.iter().map(|byte| byte.cast_signed()).collect()))
    }

    fn from_steps(steps: Box<[i8]>) -> Embedding {
        let length = (dot(&steps, &steps) as f32).sqrt();
        Embedding { steps, length }
    }

    /// Returns the bytes to store.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.steps.iter().map(|step| step.cast_unsigned()).collect()
    }

    /// Returns the number of dimensions.
    pub fn dims(&self) -> usize {
        self.steps.len()
    }

    /// Returns the cosine of the angle between two embeddings; `None` when their dimensions, and so their models, differ.
    fn nearness(&self, other: &Embedding) -> Option<f32> {
        let is_comparable = self.steps.len() == other.steps.len();
        is_comparable.then(|| dot(&self.steps, &other.steps) as f32 / (self.length * other.length))
    }
}

/// Returns the dot product. It cannot overflow: 4096 products of at most 128 × 128.
fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(i16::from(*a) * i16::from(*b))).sum()
}

/// Similarity of a question to each document of an index, in their order, from an embeddings service: 1 is the same, 0
/// is no nearer than the documents on average. `None` for a document that has no vector yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Nearness(pub(super) Vec<Option<f32>>);

impl Nearness {
    /// Compares a question with documents; `None` if it can be compared with none of them. `documents` must have `None`
    /// also for those that the caller may not see: the average, and so every value, follows from the others alone.
    ///
    /// Models differ in the similarity of unrelated texts; for some it is never below 0.7. So the average over these
    /// documents counts as 0.
    pub fn of<'a>(
        question: &Embedding,
        documents: impl Iterator<Item = Option<&'a Embedding>>,
    ) -> Option<Nearness> {
        let mut nearness: Vec<Option<f32>> = documents.map(|document| question.nearness(document?)).collect();
        let known = || nearness.iter().flatten().copied();
        let count = known().count();
        if count == 0 {
            return None;
        }
        let usual = if count < CENTRED_FROM { 0.0 } else { known().sum::<f32>() / count as f32 };
        // above zero also where all documents are the same as the question
        let room = (1.0 - usual).max(f32::EPSILON);
        for near in nearness.iter_mut().flatten() {
            *near = ((*near - usual) / room).clamp(0.0, 1.0);
        }
        Some(Nearness(nearness))
    }
}

/// Returns the text of a tool for its vector: its name in words, title, description and parameter names. The server's
/// name is not in it, as the vector must follow from the definition alone.
pub fn text_of(document: &Document<'_>) -> String {
    let mut text = words_of(cut(document.name, NAME_BYTES_MAX));
    for (part, bytes_max) in
        [(document.title.unwrap_or_default(), NAME_BYTES_MAX), (document.description, DESCRIPTION_BYTES_MAX)]
    {
        let part = cut(part, bytes_max).trim();
        if !part.is_empty() {
            text.push_str(". ");
            text.push_str(part);
        }
    }
    for (at, parameter) in document.parameters.iter().enumerate() {
        if text.len() >= TEXT_BYTES_MAX {
            break;
        }
        text.push_str(if at == 0 { ". Parameters: " } else { ", " });
        text.push_str(&words_of(cut(parameter.name, NAME_BYTES_MAX)));
    }
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

/// Returns a name in separate words: `createIssue` as `create issue`.
fn words_of(name: &str) -> String {
    let mut words = String::new();
    for_each_piece(name, |piece, word| {
        if piece == Piece::Compound {
            return;
        }
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
    });
    if words.is_empty() { name.to_owned() } else { words }
}

fn cut(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::search::Parameter;

    #[test]
    fn what_has_no_direction_is_no_embedding() {
        let long = vec![1.0; DIMS_MAX + 1];
        for bad in [&[][..], &[0.0, 0.0], &[1.0, f32::NAN], &[f32::INFINITY], &long] {
            assert_eq!(Embedding::of(bad), None);
        }
        for bad in [&[][..], &[0, 0], &vec![1; DIMS_MAX + 1]] {
            assert_eq!(Embedding::from_bytes(bad), None);
        }
        assert!(Embedding::of(&[f32::MIN_POSITIVE, -f32::MAX]).is_some());
        let longest = Embedding::of(&vec![f32::MAX; DIMS_MAX]).unwrap();
        assert!((longest.nearness(&longest).unwrap() - 1.0).abs() < 1e-3);
    }

    #[test]
    fn another_models_vectors_are_not_compared() {
        let (two, three) = (Embedding::of(&[1.0, 0.0]).unwrap(), Embedding::of(&[1.0, 0.0, 0.0]).unwrap());
        assert_eq!(two.nearness(&three), None);
        assert_eq!(Nearness::of(&two, [Some(&three), None].into_iter()), None);
        let mixed = Nearness::of(&two, [Some(&three), Some(&two), None].into_iter()).unwrap();
        assert_eq!(mixed.0, [None, Some(1.0), None]);
    }

    #[test]
    fn what_is_usual_in_a_catalogue_counts_as_nothing() {
        // a model with a similarity of at least 0.7 for any two texts
        let of = |away: f32| Embedding::of(&[1.0, away]).unwrap();
        let documents: Vec<Embedding> = (0..20).map(|n| of(if n == 7 { 0.1 } else { 0.9 })).collect();
        let nearness = Nearness::of(&of(0.0), documents.iter().map(Some)).unwrap();
        assert!(nearness.0[7].unwrap() > 0.9, "{nearness:?}");
        assert!(nearness.0[8].unwrap() < 0.01, "{nearness:?}");
    }

    #[test]
    fn a_tools_text_is_what_it_is_called_and_does_and_takes() {
        let parameters = vec![
            Parameter { name: "repoOwner", description: "not sent" },
            Parameter { name: "title", description: "" },
        ];
        let mut document = Document {
            server: "github",
            name: "create_issue",
            title: Some("Create"),
            description: " Opens an issue. ",
            parameters,
        };
        assert_eq!(
            text_of(&document),
            "create issue. Create. Opens an issue.. Parameters: repo owner, title"
        );
        document = Document { name: "路", title: None, description: "", parameters: vec![], ..document };
        assert_eq!(text_of(&document), "路");
    }

    proptest! {
        #[test]
        fn a_stored_vector_points_where_it_did(vector in proptest::collection::vec(-1.0_f32..1.0, 1..400)) {
            if let Some(stored) = Embedding::of(&vector) {
                prop_assert_eq!(Embedding::from_bytes(&stored.to_bytes()), Some(stored.clone()));
                let exact: f32 = vector.iter().map(|n| n * n).sum::<f32>().sqrt();
                let dot: f32 = stored.steps.iter().zip(&vector).map(|(a, b)| f32::from(*a) * b).sum();
                prop_assert!(dot / (stored.length * exact) > 0.999);
            }
        }

        #[test]
        fn a_text_is_bounded(name in "\\PC{0,400}", text in "\\PC{0,5000}", count in 0_usize..300) {
            let parameters = vec![Parameter { name: &name, description: "" }; count];
            let document =
                Document { server: "s", name: &name, title: Some(&text), description: &text, parameters };
            prop_assert!(text_of(&document).len() <= TEXT_BYTES_MAX);
        }
    }
}
