//! The query of a request's URL: `name=value` pairs, as forms write them.

use http::{Request, Uri};

use crate::respond::Problem;
use exeat_policy::Reason;

/// The parameters of one request.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the query of a request, whose parameters have to be among `known`.
    ///
    /// # Errors
    /// The refusal that it is answered with: a parameter that is not known, or one that is there twice.
    pub(super) fn read<B>(request: &Request<B>, known: &[&str]) -> Result<Self, Box<Problem<'static>>> {
        Self::of(request.uri(), known).map_err(|detail| {
            let mut problem = Problem::new(Reason::BadRequest);
            problem.detail = detail;
            Box::new(problem)
        })
    }

    fn of(uri: &Uri, known: &[&str]) -> Result<Self, String> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            if !known.contains(&&*name) {
                return Err(format!("expected parameters among {}, found {name:?}", known.join(", ")));
            }
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(format!("the parameter {name} is there twice"));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(pairs))
    }

    /// The value of a parameter; none where it is not there, or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// A number, or `default` where the parameter is not there.
    ///
    /// # Errors
    /// The refusal that it is answered with: it is no number up to `most`.
    pub(super) fn number(&self, name: &str, default: usize, most: usize) -> Result<usize, Box<Problem<'static>>> {
        let Some(text) = self.get(name) else { return Ok(default) };
        text.parse().ok().filter(|number| *number <= most).ok_or_else(|| {
            let mut problem = Problem::new(Reason::BadRequest);
            problem.detail = format!("expected a number from 0 to {most} for {name}, found {text:?}");
            Box::new(problem)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<Query, String> {
        Query::of(&text.parse().unwrap(), &["input", "limit"])
    }

    #[test]
    fn parameters_are_decoded_and_have_to_be_known() {
        let read = query("/v1/check?input=https%3A%2F%2Fa.test%2Fx%3Fy%3D1+2&limit=7").unwrap();
        assert_eq!(read.get("input"), Some("https://a.test/x?y=1 2"));
        assert_eq!((read.number("limit", 1, 10).unwrap(), read.number("offset", 3, 10).unwrap()), (7, 3));
        assert!(query("/x?limit=11").unwrap().number("limit", 1, 10).is_err());
        assert_eq!(query("/x").unwrap().get("input"), None);
        assert_eq!(query("/x?input=").unwrap().get("input"), None);
        assert!(query("/x?inptu=1").unwrap_err().contains("among input, limit"));
        assert!(query("/x?input=1&input=2").unwrap_err().contains("twice"));
    }
}
