"""The expressions of Spark that the SQL of a rule may have, by the names of their classes: those that read values only.

Some expressions are left out because they call code of others (functions of users, `reflect`), open files or addresses
that a text names (`xpath`, `from_xml`, `from_avro`, `from_protobuf`), or reveal the machine and its user.
`tests/jobs/expire/test_allowed.py` names the expressions of Spark that are in no list.
"""

_CONDITIONS = """
Alias And AssertNotNull AtLeastNNonNulls AttributeReference Between CaseWhen Cast Coalesce CommonExpressionDef
CommonExpressionRef EqualNull EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual ILike If In InSet IsNaN IsNotNull
IsNotUnknown IsNull IsUnknown KnownNotNull KnownNullable LateralColumnAliasReference LessThan LessThanOrEqual Like
LikeAll LikeAny Literal NaNvl Not NotLikeAll NotLikeAny NullIf NullIfZero Nvl Nvl2 Or OuterReference RLike TryEval
UpCast With ZeroIfNull
"""
"""Columns, conditions and casts."""
_TEXTS = """
AesDecrypt AesEncrypt Ascii Base64 BinaryPad BitLength Chr Collate Collation CollationAwareMurmur3Hash
CollationAwareXxHash64 CollationKey ConcatWs Contains Crc32 CsvToStructs Decode Elt Empty2Null Encode EndsWith
FindInSet FormatNumber FormatString GetJsonObject InitCap IsValidUTF8 IsVariantNull JsonObjectKeys JsonToStructs
JsonTuple Left Length LengthOfJsonArray Levenshtein Lower Luhncheck MakeValidUTF8 Mask Md5 Murmur3Hash OctetLength
Overlay ParseJson ParseUrl Quote RandStr RegExpCount RegExpExtract RegExpExtractAll RegExpInStr RegExpReplace
RegExpSubStr ResolvedCollation Right SchemaOfCsv SchemaOfJson SchemaOfVariant SchemaOfVariantAgg SemiStructuredExtract
Sentences Sha1 Sha2 SoundEx SplitPart StartsWith StringDecode StringInstr StringLPad StringLocate StringRPad
StringRepeat StringReplace StringSpace StringSplit StringSplitSQL StringTranslate StringTrim StringTrimBoth
StringTrimLeft StringTrimRight StructsToCsv StructsToJson Substring SubstringIndex ToBinary ToCharacter ToNumber
ToPrettyString ToVariantObject TryAesDecrypt TryParseUrl TryToBinary TryToNumber TryUrlDecode TryValidateUTF8 TypeOf
UnBase64 Upper UrlDecode UrlEncode ValidateUTF8 VariantGet XxHash64
"""
"""Texts, JSON, CSV, variants, hashes."""
_NUMBERS = """
Abs Acos Acosh Add Asin Asinh Atan Atan2 Atanh BRound Bin BitmapBitPosition BitmapBucketNumber BitmapCount BitwiseAnd
BitwiseCount BitwiseGet BitwiseNot BitwiseOr BitwiseXor Cbrt Ceil CheckOverflow CheckOverflowInSum Conv Cos Cosh Cot
Csc DecimalAddNoOverflowCheck DecimalDivideWithOverflowCheck Divide EulerNumber Exp Expm1 Factorial Floor Greatest Hex
HllSketchEstimate HllUnion Hypot IntegralDivide KnownFloatingPointNormalized Least Log Log10 Log1p Log2 Logarithm
MakeDecimal Multiply Pi Pmod Pow Rand Randn Remainder Rint Round RoundCeil RoundFloor Sec ShiftLeft ShiftRight
ShiftRightUnsigned Signum Sin Sinh Sqrt Subtract Tan Tanh ThetaDifference ThetaIntersection ThetaSketchEstimate
ThetaUnion ToDegrees ToRadians TryAdd TryDivide TryMod TryMultiply TrySubtract UnaryMinus UnaryPositive Unhex Uniform
UnscaledValue Uuid WidthBucket
"""
"""Numbers. Random numbers are refused later, with an error that names the reason."""
_TIMES = """
AddMonths CastTimestampNTZToLong ConvertTimezone CurrentBatchTimestamp CurrentDate CurrentTime CurrentTimeZone
CurrentTimestamp DateAdd DateAddInterval DateAddYMInterval DateDiff DateFormatClass DateFromUnixDate DatePart DateSub
DatetimeSub DayName DayOfMonth DayOfWeek DayOfYear DivideDTInterval DivideInterval DivideYMInterval Extract
ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes ExtractANSIIntervalMonths
ExtractANSIIntervalSeconds ExtractANSIIntervalYears ExtractIntervalDays ExtractIntervalHours ExtractIntervalMinutes
ExtractIntervalMonths ExtractIntervalSeconds ExtractIntervalYears FromUTCTimestamp FromUnixTime GetTimestamp Hour
HoursOfTime LastDay LocalTimestamp MakeDTInterval MakeDate MakeInterval MakeTime MakeTimestamp
MakeTimestampFromDateTime MakeTimestampNTZ MakeYMInterval MicrosToTimestamp MillisToTimestamp Minute MinutesOfTime
Month MonthName MonthsBetween MultiplyDTInterval MultiplyInterval MultiplyYMInterval NextDay Now ParseToDate
ParseToTimestamp PreciseTimestampConversion Quarter Second SecondWithFraction SecondsOfTime SecondsOfTimeWithFraction
SecondsToTimestamp SessionWindow SubtractDates SubtractTimes SubtractTimestamps TimeAddInterval TimeDiff TimeTrunc
TimeWindow TimestampAdd TimestampAddInterval TimestampAddYMInterval TimestampDiff ToTime ToTimeParser ToUTCTimestamp
ToUnixTimestamp TruncDate TruncInstant TruncTimestamp TryMakeInterval TryMakeTimestamp TryMakeTimestampFromDateTime
UTCTimestamp UnixDate UnixMicros UnixMillis UnixSeconds UnixTimestamp WeekDay WeekOfYear WindowTime Year YearOfWeek
"""
"""Dates, times and intervals; expressions of the present time count as random."""
_ARRAYS = """
ArrayAggregate ArrayAppend ArrayBinarySearch ArrayCompact ArrayContains ArrayDistinct ArrayExcept ArrayExists
ArrayFilter ArrayForAll ArrayInsert ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayPrepend ArrayRemove
ArrayRepeat ArraySize ArraySort ArrayTransform ArrayUnion ArraysOverlap ArraysZip Concat CreateArray CreateMap
CreateNamedStruct DropField ElementAt Flatten Get GetArrayItem GetArrayStructFields GetMapValue GetStructField
KnownNotContainsNull LambdaFunction MapConcat MapContainsKey MapEntries MapFilter MapFromArrays MapFromEntries MapKeys
MapSort MapValues MapZipWith NamedLambdaVariable Reverse Sequence Shuffle Size Slice SortArray StringToMap
TransformKeys TransformValues TryElementAt UpdateFields WithField ZipWith
"""
"""Arrays, maps, structs, lambdas."""
_QUERIES = """
Cube CumeDist CurrentRow DenseRank Exists Explode GeneratorOuter GroupingSets InSubquery Inline Lag LateralSubquery
Lead ListQuery NTile NamedArgumentExpression NthValue PercentRank PosExplode Rank ReplicateRows Rollup RowNumber
ScalarSubquery SortOrder SpecifiedWindowFrame Stack UnboundedFollowing UnboundedPreceding UnspecifiedFrame
VariantExplode WindowExpression WindowSpecDefinition
"""
"""Subqueries, windows, rows made of arrays."""
_AGGREGATES = """
AggregateExpression AnyValue ApproxTopK ApproxTopKAccumulate ApproxTopKCombine ApproximatePercentile Average BitAndAgg
BitOrAgg BitXorAgg BitmapAndAgg BitmapConstructAgg BitmapOrAgg BoolAnd BoolOr CollectList CollectSet Corr Count
CountIf CountMinSketchAgg CovPopulation CovSample First Grouping GroupingID HistogramNumeric HllSketchAgg HllUnionAgg
HyperLogLogPlusPlus KllSketchAggBigint KllSketchAggDouble KllSketchAggFloat Kurtosis Last ListAgg Max MaxBy Median Min
MinBy Mode Percentile PercentileCont PercentileDisc RegrAvgX RegrAvgY RegrCount RegrIntercept RegrR2 RegrReplacement
RegrSXX RegrSXY RegrSYY RegrSlope Skewness StddevPop StddevSamp Sum ThetaIntersectionAgg ThetaSketchAgg ThetaUnionAgg
VariancePop VarianceSamp
"""
"""Aggregates of subqueries."""
_ALL = (_CONDITIONS, _TEXTS, _NUMBERS, _TIMES, _ARRAYS, _QUERIES, _AGGREGATES)
ALLOWED = frozenset(name for names in _ALL for name in names.split())
