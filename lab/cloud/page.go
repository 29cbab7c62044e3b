package cloud

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The API's page sizes (docs.hetzner.cloud, "Pagination").
const (
	defaultPageSize = 25
	largestPageSize = 50
)

// listMeta is the meta object of every list.
type listMeta struct {
	Pagination pagination `json:"pagination"`
}

type pagination struct {
	Page         int  `json:"page"`
	PerPage      int  `json:"per_page"`
	PreviousPage *int `json:"previous_page"`
	NextPage     *int `json:"next_page"`
	LastPage     *int `json:"last_page"`
	TotalEntries *int `json:"total_entries"`
}

// paginate returns the page of the items that the query selects.
func paginate[T any](items []T, query url.Values) ([]T, listMeta, error) {
	page, err := positive(query, "page", 1)
	if err != nil {
		return nil, listMeta{}, err
	}
	size, err := positive(query, "per_page", defaultPageSize)
	if err != nil {
		return nil, listMeta{}, err
	}
	size = min(size, largestPageSize)

	total := len(items)
	last := max(1, (total+size-1)/size)
	meta := pagination{Page: page, PerPage: size, LastPage: &last, TotalEntries: &total}
	if page > 1 {
		previous := min(page-1, last)
		meta.PreviousPage = &previous
	}
	if page < last {
		next := page + 1
		meta.NextPage = &next
	}
	from := min((page-1)*size, total)
	return items[from:min(from+size, total)], listMeta{Pagination: meta}, nil
}

// positive reads a number of at least 1.
func positive(query url.Values, name string, absent int) (int, error) {
	text := query.Get(name)
	if text == "" {
		return absent, nil
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 || number > 1<<31 {
		return 0, invalid(name, "%q is not a positive number", text)
	}
	return number, nil
}

// sortKeys are the ways that records of one kind can be compared.
type sortKeys[R any] map[string]func(a, b R) int

// sortBy orders the records by the query's sort parameters ("name", "created:desc", repeatable,
// the first weighs most); by id where they say nothing or leave a tie.
func sortBy[R record](records []R, query url.Values, keys sortKeys[R]) error {
	var orders []func(a, b R) int
	for _, text := range query["sort"] {
		name, direction, _ := strings.Cut(text, ":")
		compare, ok := keys[name]
		if !ok || (direction != "" && direction != "asc" && direction != "desc") {
			return invalid("sort", "%q is not a way to sort", text)
		}
		if direction == "desc" {
			ascending := compare
			compare = func(a, b R) int { return ascending(b, a) }
		}
		orders = append(orders, compare)
	}
	slices.SortFunc(records, func(a, b R) int {
		for _, order := range orders {
			if result := order(a, b); result != 0 {
				return result
			}
		}
		return cmp.Compare(a.base().ID, b.base().ID)
	})
	return nil
}
