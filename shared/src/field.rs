//! How a report's JSON becomes typed fields and JSON again without losing anything.
//!
//! A key can be absent, null, a value of the expected kind, or something else; the four stay apart, and a
//! section keeps the keys that it doesn't know. It knows nothing of what a field means: that is `metric`
//! and `verdict`.

use serde_json::{Map, Number, Value};

/// One key of a section.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Field<T> {
    /// The key is not there.
    #[default]
    Absent,
    /// The key is there and null: not measured.
    Null,
    /// The key has a value of the kind the schema names.
    Is(T),
    /// The key has a value of another kind; kept as it is and reported.
    Odd(Value),
}

impl<T> Field<T> {
    /// The value, where there is one of the right kind.
    pub fn get(&self) -> Option<&T> {
        if let Field::Is(value) = self { Some(value) } else { None }
    }

    /// Whether the key is not there at all.
    pub fn is_absent(&self) -> bool {
        matches!(self, Field::Absent)
    }

    /// The value through `change`; what isn't one stays what it is.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Field<U> {
        match self {
            Field::Is(value) => Field::Is(change(value)),
            Field::Absent => Field::Absent,
            Field::Null => Field::Null,
            Field::Odd(value) => Field::Odd(value),
        }
    }

    /// A value, or null where there is none: how a measurement is written.
    pub fn or_null(value: Option<T>) -> Self {
        value.map_or(Field::Null, Field::Is)
    }
}

impl Field<Num> {
    /// A measured number; one that isn't finite is not a measurement and becomes null.
    pub fn num(value: f64) -> Self {
        Number::from_f64(value).map_or(Field::Null, |n| Field::Is(Num(n)))
    }

    /// A measured number or null.
    pub fn opt(value: Option<f64>) -> Self {
        value.map_or(Field::Null, Field::num)
    }

    /// The number, where there is one.
    pub fn f64(&self) -> Option<f64> {
        self.get().map(Num::f64)
    }
}

impl Field<Int> {
    /// A count.
    pub fn int(value: impl Into<i64>) -> Self {
        Field::Is(Int(Number::from(value.into())))
    }

    /// An unsigned count; those beyond the range of a file's integers end at its largest.
    pub fn count(value: u64) -> Self {
        Field::Is(Int(Number::from(value)))
    }

    /// The count, where there is one.
    pub fn i64(&self) -> Option<i64> {
        self.get().map(Int::i64)
    }
}

impl Field<String> {
    /// A text.
    pub fn text(value: impl Into<String>) -> Self {
        Field::Is(value.into())
    }

    /// The text, where there is one.
    pub fn str(&self) -> Option<&str> {
        self.get().map(String::as_str)
    }
}

impl Field<bool> {
    /// Whether the value is there and true.
    pub fn yes(&self) -> bool {
        self.get() == Some(&true)
    }
}

impl<T> Field<List<T>> {
    /// The elements of the right kind; none where the list is missing.
    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.get().into_iter().flat_map(List::iter)
    }
}

impl<T> Field<Table<T>> {
    /// The entries of the right kind; none where the table is missing.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &T)> {
        self.get().into_iter().flat_map(Table::iter)
    }
}

impl<T> From<T> for Field<T> {
    fn from(value: T) -> Self {
        Field::Is(value)
    }
}

/// A number exactly as the file wrote it: `1` stays `1` and `1.0` stays `1.0`.
#[derive(Clone, Debug, PartialEq)]
pub struct Num(pub Number);

impl Num {
    /// The value.
    pub fn f64(&self) -> f64 {
        self.0.as_f64().unwrap_or(f64::NAN)
    }
}

/// A whole number exactly as the file wrote it; `3.0` counts as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Int(pub Number);

impl Int {
    /// The value; beyond the range it is the nearest end of it.
    pub fn i64(&self) -> i64 {
        self.0.as_i64().unwrap_or_else(|| self.0.as_f64().unwrap_or(0.0) as i64)
    }
}

impl<T: Into<Number>> From<T> for Int {
    fn from(value: T) -> Self {
        Int(value.into())
    }
}

/// An array; elements of another kind are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct List<T>(pub Vec<Field<T>>);

impl<T> Default for List<T> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<T> List<T> {
    /// The elements of the right kind.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(Field::get)
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        List(items.into_iter().map(Field::Is).collect())
    }
}

/// An object whose keys are data (a token count, a driver parameter), in the file's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Table<T>(pub Vec<(String, Field<T>)>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table(Vec::new())
    }
}

impl<T> Table<T> {
    /// The entries of the right kind.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().filter_map(|(key, field)| Some((key.as_str(), field.get()?)))
    }
}

impl<T> FromIterator<(String, T)> for Table<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(items: I) -> Self {
        Table(items.into_iter().map(|(key, value)| (key, Field::Is(value))).collect())
    }
}

/// A scalar inside a report, for whoever changes values in place.
#[derive(Debug)]
pub enum Leaf<'a> {
    /// A number.
    Number(&'a mut Number),
    /// A whole number.
    Whole(&'a mut Number),
    /// A text.
    Text(&'a mut String),
    /// A yes or no.
    Flag(&'a mut bool),
}

/// What couldn't be read as the schema says, by path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Keys that the schema doesn't know.
    pub unknown: Vec<String>,
    /// Keys whose value is of another kind than the schema says.
    pub odd: Vec<String>,
    /// Numbers that the file wrote as NaN or Infinity; they are null now.
    pub non_finite: usize,
}

/// Where a reader is, and what it found on the way.
#[derive(Debug, Default)]
pub struct Reader {
    path: String,
    /// What it found.
    pub findings: Findings,
}

impl Reader {
    /// Goes down to a key; gives the place to come back to.
    fn enter(&mut self, key: &str) -> usize {
        let back = self.path.len();
        self.path = join(&self.path, key);
        back
    }

    fn leave(&mut self, back: usize) {
        self.path.truncate(back);
    }

    fn unknown(&mut self, key: &str) {
        self.findings.unknown.push(join(&self.path, key));
    }

    fn odd(&mut self) {
        self.findings.odd.push(self.path.clone());
    }
}

/// A kind of value that a report can hold.
pub trait Json: Sized {
    /// Takes the value, or gives it back where it is of another kind.
    ///
    /// # Errors
    /// The value itself, unchanged.
    fn read(value: Value, reader: &mut Reader) -> Result<Self, Value>;
    /// The value as JSON.
    fn write(&self) -> Value;
    /// Hands every typed scalar to `edit`, with its path.
    fn each_leaf(&mut self, path: &str, edit: &mut dyn FnMut(&str, Leaf<'_>));
    /// The JSON Schema of the kind; named sections go to `defs`.
    fn schema(defs: &mut Map<String, Value>) -> Value;
}

impl<T: Json> Field<T> {
    /// A key's value as a field.
    pub fn read(value: Value, reader: &mut Reader) -> Self {
        if value.is_null() {
            return Field::Null;
        }
        match T::read(value, reader) {
            Ok(value) => Field::Is(value),
            Err(value) => {
                reader.odd();
                Field::Odd(value)
            }
        }
    }

    /// Takes a key's value. The field was absent before: nothing is lost by not dropping it, and the page is
    /// spared the code for that in each of a hundred kinds.
    #[inline(never)]
    pub fn fill(&mut self, value: Value, reader: &mut Reader) {
        std::mem::forget(std::mem::replace(self, Field::read(value, reader)));
    }

    /// The field as JSON; `None` where the key is absent.
    pub fn write(&self) -> Option<Value> {
        match self {
            Field::Absent => None,
            Field::Null => Some(Value::Null),
            Field::Is(value) => Some(value.write()),
            Field::Odd(value) => Some(value.clone()),
        }
    }

    /// Hands every typed scalar inside to `edit`.
    pub fn each_leaf(&mut self, path: &str, edit: &mut dyn FnMut(&str, Leaf<'_>)) {
        if let Field::Is(value) = self {
            value.each_leaf(path, edit);
        }
    }
}

impl Json for Num {
    fn read(value: Value, _: &mut Reader) -> Result<Self, Value> {
        if let Value::Number(n) = value { Ok(Num(n)) } else { Err(value) }
    }
    fn write(&self) -> Value {
        Value::Number(self.0.clone())
    }
    fn each_leaf(&mut self, path: &str, edit: &mut dyn FnMut(&str, Leaf<'_>)) {
        edit(path, Leaf::Number(&mut self.0));
    }
    fn schema(_: &mut Map<String, Value>) -> Value {
        kind("number")
    }
}

impl Json for Int {
    fn read(value: Value, _: &mut Reader) -> Result<Self, Value> {
        match value {
            Value::Number(n) if n.as_f64().is_some_and(|f| f.fract() == 0.0) => Ok(Int(n)),
            other => Err(other),
        }
    }
    fn write(&self) -> Value {
        Value::Number(self.0.clone())
    }
    fn each_leaf(&mut self, path: &str, edit: &mut dyn FnMut(&str, Leaf<'_>)) {
        edit(path, Leaf::Whole(&mut self.0));
    }
    fn schema(_: &mut Map<String, Value>) -> Value {
        kind("integer")
    }
}

impl Json for String {
    fn read(value: Value, _: &mut Reader) -> Result<Self, Value> {
        if let Value::String(text) = value { Ok(text) } else { Err(value) }
    }
    fn write(&self) -> Value {
        Value::String(self.clone())
    }
    fn each_leaf(&mut self, path: &str, edit: &mut dyn FnMut(&str, Leaf<'_>)) {
        edit(path, Leaf::Text(self));
    }
    fn schema(_: &mut Map<String, Value>) -> Value {
        kind("string")
    }
}

impl Json for bool {
    fn read(value: Value, _: &mut Reader) -> Result<Self, Value> {
        if let Value::Bool(flag) = value { Ok(flag) } else { Err(value) }
    }
    fn write(&self) -> Value {
        Value::Bool(*self)
    }
    fn each_leaf(&mut self, path: &str, edit: &mut dyn FnMut(&str, Leaf<'_>)) {
        edit(path, Leaf::Flag(self));
    }
    fn schema(_: &mut Map<String, Value>) -> Value {
        kind("boolean")
    }
}

/// Free-form JSON: kept, shown, not interpreted.
impl Json for Value {
    fn read(value: Value, _: &mut Reader) -> Result<Self, Value> {
        Ok(value)
    }
    fn write(&self) -> Value {
        self.clone()
    }
    fn each_leaf(&mut self, path: &str, edit: &mut dyn FnMut(&str, Leaf<'_>)) {
        match self {
            Value::Null => {}
            Value::Bool(flag) => edit(path, Leaf::Flag(flag)),
            Value::Number(n) => edit(path, Leaf::Number(n)),
            Value::String(text) => edit(path, Leaf::Text(text)),
            Value::Array(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    item.each_leaf(&format!("{path}/{i}"), edit);
                }
            }
            Value::Object(map) => {
                for (key, item) in map.iter_mut() {
                    item.each_leaf(&join(path, key), edit);
                }
            }
        }
    }
    fn schema(_: &mut Map<String, Value>) -> Value {
        Value::Bool(true)
    }
}

impl<T: Json> Json for List<T> {
    fn read(value: Value, reader: &mut Reader) -> Result<Self, Value> {
        let Value::Array(items) = value else { return Err(value) };
        let mut list = Vec::with_capacity(items.len());
        for (i, item) in items.into_iter().enumerate() {
            let back = reader.enter(&i.to_string());
            list.push(Field::read(item, reader));
            reader.leave(back);
        }
        Ok(List(list))
    }
    fn write(&self) -> Value {
        Value::Array(self.0.iter().map(|item| item.write().unwrap_or(Value::Null)).collect())
    }
    fn each_leaf(&mut self, path: &str, edit: &mut dyn FnMut(&str, Leaf<'_>)) {
        for (i, item) in self.0.iter_mut().enumerate() {
            item.each_leaf(&format!("{path}/{i}"), edit);
        }
    }
    fn schema(defs: &mut Map<String, Value>) -> Value {
        let mut schema = kind("array");
        schema["items"] = nullable(T::schema(defs));
        schema
    }
}

impl<T: Json> Json for Table<T> {
    fn read(value: Value, reader: &mut Reader) -> Result<Self, Value> {
        let Value::Object(map) = value else { return Err(value) };
        let mut table = Vec::with_capacity(map.len());
        for (key, item) in map {
            let back = reader.enter(&key);
            table.push((key, Field::read(item, reader)));
            reader.leave(back);
        }
        Ok(Table(table))
    }
    fn write(&self) -> Value {
        Value::Object(self.0.iter().filter_map(|(key, item)| Some((key.clone(), item.write()?))).collect())
    }
    fn each_leaf(&mut self, path: &str, edit: &mut dyn FnMut(&str, Leaf<'_>)) {
        for (key, item) in &mut self.0 {
            item.each_leaf(&join(path, key), edit);
        }
    }
    fn schema(defs: &mut Map<String, Value>) -> Value {
        let mut schema = kind("object");
        schema["additionalProperties"] = nullable(T::schema(defs));
        schema
    }
}

/// A JSON pointer one step further down.
pub fn join(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn kind(name: &str) -> Value {
    let mut map = Map::new();
    map.insert("type".into(), name.into());
    Value::Object(map)
}

/// The same schema, or null.
pub fn nullable(schema: Value) -> Value {
    if schema == Value::Bool(true) {
        return schema;
    }
    let mut map = Map::new();
    map.insert("anyOf".into(), Value::Array(vec![schema, kind("null")]));
    Value::Object(map)
}

/// Declares a section of the report: a struct with one [`Field`] a key, the keys it doesn't know in `extra`,
/// and its part of the JSON Schema. `@always` marks the keys that a report measured by Tokscope always has.
macro_rules! section {
    ($(
        $(#[doc = $doc:expr])+
        pub struct $name:ident {
            $( $(#[doc = $fdoc:expr])+ $(@$always:ident)? $field:ident : $ty:ty, )*
        }
    )+) => { $(
        $(#[doc = $doc])+
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $( $(#[doc = $fdoc])+ pub $field: $crate::field::Field<$ty>, )*
            /// Keys of the file that this version doesn't know; written back as they were.
            pub extra: serde_json::Map<String, serde_json::Value>,
        }

        const _: () = {
        const KEYS: &[&str] = &[ $( stringify!($field), )* ];

        // The place of each in KEYS.
        #[allow(non_camel_case_types, reason = "named as the fields are")]
        enum Key { $( $field, )* }

        impl $crate::field::Json for $name {
            #[inline(never)]
            fn read(value: serde_json::Value, reader: &mut $crate::field::Reader) -> Result<Self, serde_json::Value> {
                let mut section = Self::default();
                let extra = $crate::field::read_section(KEYS, value, reader, &mut |at, value, reader| match at {
                    $( at if at == Key::$field as usize => section.$field.fill(value, reader), )*
                    _ => {}
                })?;
                section.extra = extra;
                Ok(section)
            }
            fn write(&self) -> serde_json::Value {
                $crate::field::write_section(KEYS, &self.extra, &|at| match at {
                    $( at if at == Key::$field as usize => self.$field.write(), )*
                    _ => None,
                })
            }
            fn each_leaf(&mut self, path: &str, edit: &mut dyn FnMut(&str, $crate::field::Leaf<'_>)) {
                $( self.$field.each_leaf(&$crate::field::join(path, stringify!($field)), edit); )*
            }
            fn schema(defs: &mut serde_json::Map<String, serde_json::Value>) -> serde_json::Value {
                $crate::field::section_schema(
                    stringify!($name),
                    concat!($($doc),+),
                    &[ $( $crate::field::Key {
                        name: stringify!($field),
                        doc: concat!($($fdoc),+),
                        always: !<[&str]>::is_empty(&[$(stringify!($always))?]),
                        schema: <$ty as $crate::field::Json>::schema,
                    }, )* ],
                    defs,
                )
            }
        }
        };
    )+ };
}
pub(crate) use section;

// The code that goes over a section's fields exists once and not once a section, which a page that is downloaded
// can't afford. A section tells it by number which field is meant.

/// Fills a section's fields; gives back what belongs to none, or the value where it is no object.
#[doc(hidden)]
pub fn read_section(
    keys: &[&str],
    value: Value,
    reader: &mut Reader,
    fill: &mut dyn FnMut(usize, Value, &mut Reader),
) -> Result<Map<String, Value>, Value> {
    let Value::Object(map) = value else { return Err(value) };
    let mut extra = Map::new();
    for (key, item) in map {
        match keys.iter().position(|known| *known == key) {
            Some(at) => {
                let back = reader.enter(&key);
                fill(at, item, reader);
                reader.leave(back);
            }
            None => {
                reader.unknown(&key);
                extra.insert(key, item);
            }
        }
    }
    Ok(extra)
}

/// A section as JSON: its fields, then what belongs to none.
#[doc(hidden)]
pub fn write_section(keys: &[&str], extra: &Map<String, Value>, written: &dyn Fn(usize) -> Option<Value>) -> Value {
    let known = keys.iter().enumerate().filter_map(|(at, key)| Some(((*key).to_owned(), written(at)?)));
    let more = extra.iter().map(|(key, item)| (key.clone(), item.clone()));
    Value::Object(known.chain(more).collect())
}

/// One key of a section, for the schema.
#[doc(hidden)]
pub struct Key {
    pub name: &'static str,
    pub doc: &'static str,
    pub always: bool,
    pub schema: fn(&mut Map<String, Value>) -> Value,
}

/// Puts a section's schema into `defs` once and gives a reference to it.
#[doc(hidden)]
pub fn section_schema(name: &str, doc: &str, keys: &[Key], defs: &mut Map<String, Value>) -> Value {
    if !defs.contains_key(name) {
        defs.insert(name.to_owned(), Value::Null);
        let mut properties = Map::new();
        for key in keys {
            let mut schema = nullable((key.schema)(defs));
            if schema == Value::Bool(true) {
                schema = Value::Object(Map::new());
            }
            schema["description"] = key.doc.trim().into();
            properties.insert(key.name.to_owned(), schema);
        }
        let mut schema = kind("object");
        schema["description"] = doc.trim().into();
        schema["properties"] = Value::Object(properties);
        let always: Vec<Value> = keys.iter().filter(|key| key.always).map(|key| key.name.into()).collect();
        if !always.is_empty() {
            schema["required"] = Value::Array(always);
        }
        defs.insert(name.to_owned(), schema);
    }
    let mut reference = Map::new();
    reference.insert("$ref".into(), format!("#/$defs/{name}").into());
    Value::Object(reference)
}
